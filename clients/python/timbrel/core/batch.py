"""The bookkeeping of many notes asked for on one stream: what to send, what came, what to hand out next.

Nothing here waits, sends or looks at a clock: the blocking and the asynchronous client drive it alike.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from timbrel.core.faults import error_from_status
from timbrel.core.reply import NoteAssembler, WrittenNote
from timbrel.core.request import NoteRequest, placed_to_pb
from timbrel.core.retry import Patience
from timbrel.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    TimbrelError,
    refusal,
    within_allowed,
)
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

READ_AHEAD = 2
"""Notes asked for or waiting to be handed out, as a multiple of those in flight: with an order to keep, what
overtakes a slow note must not leave the server idle."""

DEFAULT_IN_FLIGHT = 32
"""Where the server does not say how many it takes at once."""


MOST_IN_FLIGHT = 4096
"""However many the server says that it takes: as many requests are read ahead."""


@dataclass(frozen=True)
class Result:
    """The outcome of one request."""

    index: int
    """Its place among the requests, from 0."""

    request: NoteRequest
    """As it was sent: at a point, with a seed."""

    outcome: WrittenNote | TimbrelError
    """The note, or why there is none."""


@dataclass
class _Item:
    """A request that has not been answered."""

    request: NoteRequest
    message: pb.GenerateRequest
    n_failures: int = 0
    waits: bool = False
    """It was refused for now, and is to be sent again."""


class Batch:
    """Many notes, by their index: each is sent until it is answered, and handed out exactly once."""

    def __init__(
        self,
        manifest: pb.Manifest,
        timbre_map: pb.TimbreMap,
        patience: Patience,
        max_in_flight: int,
        *,
        ordered: bool,
    ) -> None:
        """Has at most `max_in_flight` notes unanswered, and READ_AHEAD times as many not yet handed out."""
        self._manifest = manifest
        self._timbre_map = timbre_map
        self._patience = patience
        self._max_in_flight = max_in_flight
        self._ordered = ordered
        self._n_read = 0
        self._n_handed_out = 0
        self._more = True
        self._items: dict[int, _Item] = {}  # unanswered, in the order they came
        self._to_send: list[tuple[float, int]] = []  # heap of (not before, index)
        self._n_breaks = 0  # since a note last came
        self._broken_by: TimbrelError | None = None  # and nothing was heard since
        self._results: dict[int, Result] = {}  # not handed out

    @property
    def has_room(self) -> bool:
        """Whether one more request may be read."""
        return (
            len(self._items) < self._max_in_flight
            and self._n_read - self._n_handed_out < READ_AHEAD * self._max_in_flight
        )

    @property
    def is_answered(self) -> bool:
        """Whether nothing is left to be sent or heard."""
        return not self._more and not self._items

    @property
    def is_finished(self) -> bool:
        """Whether everything has been handed out too."""
        return not self._more and self._n_handed_out == self._n_read

    def add(self, request: NoteRequest, now: float) -> None:
        """Takes the next request. One that no server would accept is a result at once."""
        if not self._items:
            self._patience.renew(now)  # until now the server owed nothing
        index = self._n_read
        item: _Item | InvalidRequestError
        try:
            if not isinstance(request, NoteRequest):
                raise refusal("requests", f"item {index} must be a NoteRequest, got {request!r:.100}")
            item = _Item(*placed_to_pb(request.seeded(), self._timbre_map, self._manifest))
        except InvalidRequestError as error:
            item = error
        self._n_read += 1  # not sooner: what raises anything else has no result, for which nobody may wait
        if isinstance(item, InvalidRequestError):
            self._results[index] = Result(index, request, item)
        else:
            self._items[index] = item
            self._patience.expect(item.message.seconds)
            heapq.heappush(self._to_send, (-math.inf, index))

    def end(self) -> None:
        """There are no more requests."""
        self._more = False

    def open_stream(self) -> None:
        """A new stream begins: all that is unanswered is to be sent on it."""
        for item in self._items.values():
            item.waits = False
        self._to_send = [(-math.inf, index) for index in self._items]
        heapq.heapify(self._to_send)

    def next_to_send(self, now: float) -> pb.GenerateBatchRequest | None:
        """The next message for the present stream; None where there is none yet."""
        if not self._to_send or self._to_send[0][0] > now:
            return None
        _, index = heapq.heappop(self._to_send)
        item = self._items[index]
        item.waits = False
        return pb.GenerateBatchRequest(id=index, note=item.message)

    def seconds_until_due(self, now: float) -> float | None:
        """Seconds until `next_to_send` may have something to say; None where no clock decides."""
        return max(0.0, self._to_send[0][0] - now) if self._to_send else None

    def receive(self, response: pb.GenerateBatchResponse, now: float) -> None:
        """Takes one response. Of what was answered before, or never asked, nothing is heard."""
        self._broken_by = None
        item = self._items.get(response.id)
        if item is None or item.waits:
            return
        outcome = self._read(response)
        if isinstance(outcome, TimbrelError):
            item.n_failures += 1
            delay = self._patience.delay_after(outcome, item.n_failures, now)
            if delay is not None:
                item.waits = True
                heapq.heappush(self._to_send, (now + delay, response.id))
                return
        self._patience.renew(now)
        self._n_breaks = 0
        del self._items[response.id]
        self._results[response.id] = Result(response.id, item.request, outcome)

    def break_off(self, error: TimbrelError, now: float) -> float:
        """The stream has ended with this error: returns the seconds until the next, or raises it again."""
        if not self._items:
            self._patience.renew(now)
        self._n_breaks += 1
        self._broken_by = error
        delay = self._patience.delay_after(error, self._n_breaks, now)
        if delay is None:
            raise error
        return delay

    def next_result(self) -> Result | None:
        """The next result to hand out; None where there is none yet."""
        index = self._n_handed_out if self._ordered else next(iter(self._results), -1)
        result = self._results.pop(index, None)
        self._n_handed_out += result is not None
        return result

    def seconds_left(self, now: float) -> float | None:
        """Seconds for which the server may still be silent; None where it owes nothing, or is not bounded."""
        return self._patience.left(now) if self._items else None

    def check(self, now: float) -> None:
        """Raises DeadlineExceededError, or the last break of the stream, after too long a silence."""
        left = self.seconds_left(now)
        if left is not None and left <= 0.0:
            if self._broken_by is not None:
                raise self._broken_by
            asked = "1 note was" if len(self._items) == 1 else f"{len(self._items)} notes were"
            allowed = within_allowed(self._patience.limit_seconds)
            raise DeadlineExceededError(f"GenerateBatch: {asked} asked for, and none came{allowed}")

    def _read(self, response: pb.GenerateBatchResponse) -> WrittenNote | TimbrelError:
        status = response.status
        if status.code:
            return error_from_status(status.code, status.message, status.SerializeToString())
        assembler = NoteAssembler(self._manifest)
        try:
            assembler.feed(response.note)
            return assembler.finish()
        except TimbrelError as error:
            return error
