"""Where raw notes come from: one server or several, each kept busy, each allowed to go away for a while."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from timbrel.client import Client
from timbrel.core.request import NoteRequest
from timbrel.errors import (
    BundleMismatchError,
    DeadlineExceededError,
    OverloadedError,
    TimbrelError,
    UnavailableError,
)
from timbrel.library.job import Writer
from timbrel.library.pile import Pile, Share
from timbrel.library.plan import NoteOrder
from timbrel.library.store import RawNote

MAX_IN_FLIGHT = 64
"""Of one server."""

WAITING_TO_BE_KEPT = 256
"""Notes that may have come and not been written to disk yet."""

PATIENCE_SECONDS = 300.0
"""How long a server may be away before the job goes on without it; it can be taken up again later."""

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0

PASSING = (UnavailableError, OverloadedError, DeadlineExceededError)
"""What a server may recover from by itself."""

Name = TypeVar("Name")
Tell = Callable[[str], None]


class NoteSource(Protocol):
    """Renders raw notes, in any order."""

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        """Takes (name, order) as it has room for, and yields (name, note) as they are done.

        Raises:
            TimbrelError: a note could not be had; none of those yielded is lost.
        """


class ClientSource:
    """Notes by `Client.generate_many`, of one server or of several that share the work.

    Each server takes what it has room for. One that goes away is waited for while the others go on: what it
    owed is theirs to take, and it takes part again once it is back.
    """

    def __init__(
        self,
        clients: Client | Mapping[str, Client],
        n_in_flight: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        tell: Tell = lambda message: None,
    ) -> None:
        """
        Args:
            clients: one; or one for each server, by its name, all of the same bundle.
            n_in_flight: notes asked of each at once; by default as many as it has slots, and as many again.
            patience_seconds: how long a server may be away.
            tell: called with one line when a server goes away, when it is back, and when it is given up.
        """
        self._clients = {"the server": clients} if isinstance(clients, Client) else dict(clients)
        self._n_in_flight = n_in_flight
        self._patience = patience_seconds
        self._tell = tell
        self._writer: Writer | None = None

    def hold_to(self, writer: Writer) -> None:
        """Refuses, from now on, servers that write other codes.

        Raises:
            BundleMismatchError: one that answers does; the message names it.
        """
        self._writer = writer
        for name, client in self._clients.items():
            # One that is not there now is asked when it is back.
            with suppress(*PASSING):
                check_writer(name, client, writer)

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        pile = Pile(orders, WAITING_TO_BE_KEPT + len(self._clients) * MAX_IN_FLIGHT)
        came: queue.SimpleQueue[_Came | _Left] = queue.SimpleQueue()
        hands = [
            threading.Thread(target=self._work, args=(name, client, pile, came), daemon=True)
            for name, client in self._clients.items()
        ]
        for hand in hands:
            hand.start()
        n_working, last_error = len(hands), None
        try:
            while n_working:
                event = came.get()
                if isinstance(event, _Came):
                    yield event.name, event.note
                    pile.settled()
                    continue
                n_working -= 1
                last_error = event.error or last_error
                if event.error is not None and not isinstance(event.error, (*PASSING, BundleMismatchError)):
                    raise event.error
            if last_error is not None and not pile.is_finished():
                raise last_error
        finally:
            pile.stop()
            for hand in hands:
                hand.join()

    def _work(
        self, name: str, client: Client, pile: Pile[Any, NoteOrder], came: queue.SimpleQueue[Any]
    ) -> None:
        """One server's thread: notes until there are no more orders, or it is given up."""
        absence = _Absence(name, self._patience, self._tell, has_others=len(self._clients) > 1)
        error: BaseException | None = None
        while error is None:
            try:
                if self._writer is not None:
                    check_writer(name, client, self._writer)
                with closing(_ask(client, Share(pile, absence.lasting), self._n_in_flight)) as answers:
                    for which, note in answers:
                        absence.over()
                        came.put(_Came(which, note))
                break
            except PASSING as trouble:
                error = absence.goes_on(trouble)
                if error is None and pile.rest(absence.delay()):
                    break
            except BaseException as trouble:  # handed to the thread that waits
                error = trouble
        if error is not None and len(self._clients) > 1 and isinstance(error, BundleMismatchError):
            self._tell(f"{said_of(name, error)}; going on without it")
        came.put(_Left(error))


def check_writer(name: str, client: Client, writer: Writer) -> None:
    """
    Raises:
        BundleMismatchError: the client's server would write other codes than this writer.
    """
    model = client.model()
    found = Writer.of(model)
    for field in ("bundle_hash", "codec", "precision", "provider"):
        one, other = getattr(found, field), getattr(writer, field)
        if one != other:
            what = field.replace("_", " ")
            raise BundleMismatchError(
                f"{name} has the {what} {one[:24]}, the job's is {other[:24]}: all servers of a job "
                "must write the same codes"
            )


def said_of(name: str, error: BaseException) -> str:
    """The error's message, which names the server."""
    return str(error) if name in str(error) else f"{name}: {error}"


def note_request(order: NoteOrder) -> NoteRequest:
    """The order as the client takes it."""
    sampling = order.sampling
    return NoteRequest(
        timbre=order.timbre,
        pitch=order.pitch,
        velocity=order.velocity,
        seconds=order.seconds,
        seed=order.seed,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )


def _ask(
    client: Client, share: Share[Any, NoteOrder], n_in_flight: int | None
) -> Generator[tuple[Any, RawNote], None, None]:
    """What one server answers, as it comes, until the share ends."""
    names: dict[int, Any] = {}

    def requests() -> Iterator[NoteRequest]:
        for index, (name, order) in enumerate(share):
            names[index] = name
            yield note_request(order)

    try:
        window = n_in_flight or min(MAX_IN_FLIGHT, 2 * client.model().n_slots)
        with closing(client.generate_many(requests(), ordered=False, max_in_flight=window)) as replies:
            for index, note in replies:
                name = names.pop(index)
                share.answered(name)
                yield name, RawNote(note.codes, note.truncated)
    finally:
        share.close()


class _Came(NamedTuple):
    """A note, and whose."""

    name: Any
    note: RawNote


class _Left(NamedTuple):
    """A server's thread has ended."""

    error: BaseException | None


class _Absence:
    """For how long one server has been away, and what is said of it."""

    def __init__(self, name: str, patience_seconds: float, tell: Tell, *, has_others: bool) -> None:
        self._name = name
        self._patience = patience_seconds
        self._tell = tell
        self._has_others = has_others
        self._since: float | None = None
        self._delay = FIRST_DELAY_SECONDS

    def over(self) -> None:
        """A note came."""
        if self._since is not None:
            self._since, self._delay = None, FIRST_DELAY_SECONDS
            self._tell(f"{self._name} is back")

    @property
    def lasting(self) -> bool:
        return self._since is not None

    def goes_on(self, error: TimbrelError) -> UnavailableError | None:
        """It did not answer; the error that ends the waiting for it, None while there is patience left."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if self._patience > 0:
                self._tell(f"{said_of(self._name, error)}; waiting for it, up to {self._patience:g} s")
        if now - self._since < self._patience:
            return None
        given_up = UnavailableError(f"{said_of(self._name, error)}; gave up after {self._patience:g} s")
        if self._has_others:
            self._tell(f"{given_up}; going on without it")
        return given_up

    def delay(self) -> float:
        """How long to wait before it is asked again; longer each time."""
        delay, self._delay = self._delay, min(2.0 * self._delay, LONGEST_DELAY_SECONDS)
        return delay
