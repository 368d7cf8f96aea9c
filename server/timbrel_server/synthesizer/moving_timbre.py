"""A note whose timbre moves while it sounds: what its frames say of its timbre changes on their way out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from timbrel_bundle.request_fields import TimbrePath
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import ClientKey, Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.errors import OverloadedError, ServiceError

RETRY_SECONDS = 0.1
"""A slot may be free after this time, where there was none for a move."""

Point = tuple[float, float]
Header = Sequence[Frame]
"""A note's lead frames."""
Change = tuple[int, Point, Point, float]
"""The frame at which a note begins to take on a timbre, which lies a share of the way from one point to
another."""


class MovingTimbre:
    """The timbre of one note, which moves along its request's path until it is sent somewhere else.

    The codes that a note begins with, its header, say all of its timbre. So at a new point the engine is
    asked for the beginning of a note there, of the same pitch, velocity and seed, and its header replaces the
    note's, a row a frame, while all else goes on: the fundamental, and when the key goes up. Along a path one
    header becomes the other step by step. What is played live has it written in a slot that is free, so that
    no key goes up for it: where there is none, the note goes on as it is until there is. For one event loop.
    """

    def __init__(
        self, engine: EnginePool, codec: pb.CodecSpec, request: NoteRequest, client: ClientKey
    ) -> None:
        """
        Args:
            client: whose turn the headers take.
        """
        self._engine = engine
        self._client = replace(client, patient=True)
        n_rows = codec.lead_frames
        self._request = replace(
            request,
            held_frames=n_rows + 1,
            least_held_frames=1,
            lead_frames=n_rows - 1,  # they go out together
            frames_ahead=None,
            held_on_frames=0,
            path=(),
            is_header=True,
        )
        self._is_live = request.is_live
        self._hold = [code if code < codec.codebook_size else None for code in codec.hold]
        self._bases, self._top = codec.code_bases, codec.codebook_size - 1
        self._n_rows = n_rows
        self._n_passed = 0
        self._header: Header = ()
        self._due: set[int] = set()  # rows of it that have not gone out
        self._rate = codec.sample_rate / codec.hop_length
        self._way = _way(request.timbre, request.path, self._rate, n_rows)
        self._next = next(self._way, None)  # change on the way
        self._change: Change | None = None  # whose frame has come
        self._headers: dict[Point, Header] = {}  # of the path
        self._target: Point | None = None  # where to go once it is where it was sent before
        self._task: asyncio.Task[None] | None = None

    def move(self, timbre: Point) -> None:
        """The note goes to this point from now on, and no further along its path; of points that come faster
        than it goes, the last counts.

        Raises:
            OverloadedError: no slot is free to write the header, or soon to be.
        """
        self._target = timbre
        if self._task is None or self._task.done():
            if self._engine.is_full:
                raise OverloadedError("there is no free slot for a note's timbre to move", RETRY_SECONDS)
            self._task = asyncio.create_task(self._follow(), name="moving-timbre")
        self._next = self._change = None

    async def pass_on(self, delivery: Delivery) -> Delivery:
        """Returns the note's next frames, changed where its timbre moves.

        Raises:
            ServiceError: as the engine, where the note has a path.
        """
        if not self._header and self._next is None and self._change is None:
            self._n_passed += len(delivery.frames)
            return delivery
        return replace(delivery, frames=[await self._changed(frame) for frame in delivery.frames])

    def close(self) -> None:
        """Gives up what is being written."""
        if self._task is not None:
            self._task.cancel()

    async def _changed(self, frame: Frame) -> Frame:
        n = self._n_passed
        self._n_passed += 1
        while self._next is not None and n >= self._next[0]:  # of several at once, the last counts
            self._change, self._next = self._next, next(self._way, None)
        if (change := self._change) is not None:
            _, here, there, share = change
            with contextlib.suppress(OverloadedError):  # the next frame tries again
                header = self._between(await self._at(here), await self._at(there), share)
                if self._change is change:  # it was not sent elsewhere meanwhile
                    self._take(header)
                    self._change = None
        if not self._header or n < self._n_rows:
            return frame
        row = n % self._n_rows
        news: Sequence[int | None] = self._header[row] if row in self._due else self._hold
        self._due.discard(row)
        return tuple(
            code if hold is None or new is None else new
            for code, new, hold in zip(frame, news, self._hold, strict=True)
        )

    def _take(self, header: Header) -> None:
        self._header, self._due = header, set(range(self._n_rows))

    async def _at(self, point: Point) -> Header:
        """Returns the header at a point of the path, asked for once."""
        if point not in self._headers:
            self._headers[point] = await self._header_at(point)
        return self._headers[point]

    async def _follow(self) -> None:
        with contextlib.suppress(ServiceError):  # the next move tries again, or the note itself ends by it
            while (point := self._target) is not None:
                try:
                    self._take(await self._header_at(point))
                except OverloadedError:
                    await asyncio.sleep(1 / self._rate)
                    continue
                if self._target is point:
                    self._target = None

    async def _header_at(self, point: Point) -> Header:
        """Returns the first frames of a note at this point. Raises OverloadedError where this one is played
        live, and no slot is free."""
        deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        handle = RequestHandle(replace(self._request, timbre=point), deliveries.put_nowait, self._client)
        self._engine.accept(handle, at_once=self._is_live)
        frames: list[Frame] = []
        try:
            while len(frames) < self._n_rows:
                delivery = await deliveries.get()
                if delivery.error is not None:
                    raise delivery.error
                frames += delivery.frames
                if delivery.finish is not None:
                    break
        finally:
            self._engine.cancel(handle)
        return frames[: self._n_rows] if len(frames) >= self._n_rows else self._header

    def _between(self, here: Header, there: Header, share: float) -> Header:
        """Returns the header that lies this share of the way between two."""
        if share == 1.0 or not here:
            return there
        bases = iter(self._bases)
        return [
            tuple(
                min(_code_between(one, other, share, next(bases)), self._top)  # there may be no such code
                for one, other in zip(*rows, strict=True)
            )
            for rows in zip(here, there, strict=True)
        ]


def _code_between(here: int, there: int, share: float, base: int) -> int:
    """Goes over from one code to another, digit by digit of this base; 0: at once, half way."""
    if not base:
        return there if share >= 0.5 else here
    code, place = 0, 1
    while here or there:
        here, first = divmod(here, base)
        there, second = divmod(there, base)
        code += place * round(first + (second - first) * share)
        place *= base
    return code


def _way(start: Point, path: TimbrePath, rate: float, n_rows: int) -> Iterator[Change]:
    """Yields the changes of a note: it has another timbre when all rows of the header are out."""
    for (begin, here), (end, there) in pairwise([(0.0, start), *path]):
        first, last = (n_rows + round(seconds * rate) for seconds in (begin, end))
        for frame in range(first, max(last - n_rows, first) + 1, n_rows) if here != there else ():
            arrives = frame + 2 * n_rows > last
            share = 1.0 if arrives else (frame + n_rows - first) / (last - first)
            yield frame, here, there, share
