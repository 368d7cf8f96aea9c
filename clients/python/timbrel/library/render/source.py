"""The source of raw notes: one server or several, each kept busy, each allowed to go away for a while."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, Protocol, TypeVar

from timbrel import errors
from timbrel.client import Client
from timbrel.core.request import NoteRequest
from timbrel.library.plan.job import ModelIdentity
from timbrel.library.render.store import RawNote
from timbrel.library.render.work_queue import Lease, WorkQueue
from timbrel.settings import SERVER_VARIABLE, parse_address
from timbrel.threads import next_in_turns

MAX_IN_FLIGHT = 64
"""Notes asked of one server at once, at most."""

MAX_UNSAVED = 256
"""Notes that may have come and not been written to disk yet, at most."""

SILENT_SECONDS = 30.0
"""A server that gives nothing for so long counts as away: what it owes goes to others."""

PATIENCE_SECONDS = 300.0
"""How long a server may be away before the job goes on without it; it can be taken up again later."""

STOP_SECONDS = 1.0
"""So long a job that ends early waits for its threads; one that asks a server that hangs is left alone."""

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0

TRANSIENT_ERRORS = (errors.UnavailableError, errors.OverloadedError, errors.DeadlineExceededError)
"""Errors that a server may recover from by itself."""

Name = TypeVar("Name")
Tell = Callable[[str], None]

_Events = queue.SimpleQueue[tuple[Any, RawNote] | BaseException | None]
"""(name, note) as it comes; of each server's thread, as it ends, an error unless all is done."""


class NoteSource(Protocol):
    """A source renders raw notes, in any order."""

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        """Takes (name, order) as it has room for, and yields (name, note) as they are done. Raises
        TimbrelError: a note could not be had; none of those yielded is lost."""


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
        self._required: ModelIdentity | None = None

    def require(self, model: ModelIdentity) -> None:
        """Refuses, from now on, servers whose model writes other codes; raises as `check_model` does."""
        self._required = model
        for name, client in self._clients.items():
            # One that is not there now is asked when it is back.
            with suppress(*TRANSIENT_ERRORS):
                check_model(name, client, model)

    def render(
        self, orders: Iterable[tuple[Name, NoteRequest]]
    ) -> Generator[tuple[Name, RawNote], None, None]:
        work = WorkQueue(orders, MAX_UNSAVED + len(self._clients) * MAX_IN_FLIGHT)
        events: _Events = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(name, client, work, events), daemon=True)
            for name, client in self._clients.items()
        ]
        for thread in threads:
            thread.start()
        n_working, last_error = len(threads), None
        try:
            while n_working:
                event = next_in_turns(events)
                if isinstance(event, tuple):
                    yield event
                    work.task_done()
                    continue
                n_working -= 1
                last_error = event or last_error
                if event is not None and not isinstance(
                    event, (*TRANSIENT_ERRORS, errors.BundleMismatchError)
                ):
                    raise event
            if last_error is not None and not work.is_finished():
                raise last_error
        finally:
            work.stop()
            end = time.monotonic() + STOP_SECONDS
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))

    def _work(self, name: str, client: Client, work: WorkQueue[Any, NoteRequest], events: _Events) -> None:
        """Fetches notes from one server, in its own thread, until no orders are left or it is given up."""
        outage = _Outage(name, self._patience, self._tell, has_others=len(self._clients) > 1)
        error: BaseException | None = None
        while error is None:
            try:
                if self._required is not None:
                    check_model(name, client, self._required)
                with closing(_ask(client, Lease(work, outage.lasting), self._n_in_flight)) as answers:
                    for answer in answers:
                        outage.end()
                        events.put(answer)
                        if work.is_stopped():  # nobody wants what is still under way
                            break
                break
            except TRANSIENT_ERRORS as trouble:
                if work.is_stopped():
                    break
                error = outage.prolong(trouble)
                if error is None and work.wait(outage.delay()):
                    break
            except BaseException as trouble:  # handed to the thread that waits
                error = trouble
        if error is not None and len(self._clients) > 1 and isinstance(error, errors.BundleMismatchError):
            self._tell(f"{describe_failure(name, error)}; going on without it")
        events.put(error)


def server_addresses(given: Iterable[str] | None, environment: Mapping[str, str]) -> list[str]:
    """Reads HOST:PORT of each server from the options, else TIMBREL_SERVER. Commas may join several. Raises
    InvalidRequestError: one makes no sense."""
    texts = list(given or [environment.get(SERVER_VARIABLE, "")])
    parts = [part.strip() for text in texts for part in text.split(",")]
    wanted = [part for part in parts if part] if given is None else parts
    return list(dict.fromkeys(str(parse_address(part)) for part in wanted))


def first_answering(clients: Mapping[str, Client], tell: Tell) -> Client:
    """Finds the first client whose server answers, for the bundle and the codec; tells of those before it.
    Raises TimbrelError: none answers."""
    for number, (name, client) in enumerate(clients.items(), start=1):
        try:
            client.model()
        except TRANSIENT_ERRORS as error:
            if number == len(clients):
                raise
            tell(f"{describe_failure(name, error)}; beginning without it")
        else:
            return client
    raise ValueError("no client is given")


def check_model(name: str, client: Client, wanted: ModelIdentity) -> None:
    """Raises BundleMismatchError, naming the server, where it would write other codes than this model."""
    found = vars(ModelIdentity.of(client.model()))
    for field, other in vars(wanted).items():
        one = found[field]
        if one != other:
            what = field.replace("_", " ")
            raise errors.BundleMismatchError(
                f"{name} has the {what} {one[:24]}, the job's is {other[:24]}: all servers of a job "
                "must write the same codes"
            )


def describe_failure(name: str, error: BaseException) -> str:
    """Gives the error's message, and has it name the server."""
    return str(error) if name in str(error) else f"{name}: {error}"


def _ask(
    client: Client, lease: Lease[Any, NoteRequest], n_in_flight: int | None
) -> Generator[tuple[Any, RawNote], None, None]:
    """Asks one server, and yields what it answers as it comes, until the lease ends."""
    names: dict[int, Any] = {}

    def requests() -> Iterator[NoteRequest]:
        for index, (name, order) in enumerate(lease):
            names[index] = name
            yield order

    try:
        window = n_in_flight or min(MAX_IN_FLIGHT, max(1, 2 * client.model().n_slots))
        with closing(client.generate_many(requests(), ordered=False, max_in_flight=window)) as replies:
            for index, note in replies:
                name = names.pop(index)
                lease.complete(name)
                yield name, RawNote(note.codes, note.truncated, note.seed)
    finally:
        lease.close()


class _Outage:
    """Keeps how long one server has been away, and tells of it."""

    def __init__(self, name: str, patience_seconds: float, tell: Tell, *, has_others: bool) -> None:
        self._name = name
        self._patience = patience_seconds
        self._tell = tell
        self._has_others = has_others
        self._since: float | None = None
        self._delay = FIRST_DELAY_SECONDS

    def end(self) -> None:
        """Notes that a note came."""
        if self._since is not None:
            self._since, self._delay = None, FIRST_DELAY_SECONDS
            self._tell(f"{self._name} is back")

    @property
    def lasting(self) -> bool:
        return self._since is not None

    def prolong(self, error: errors.TimbrelError) -> errors.UnavailableError | None:
        """Notes that it did not answer; returns the error that ends the waiting, once patience is used up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if self._patience > 0:
                self._tell(
                    f"{describe_failure(self._name, error)}; waiting for it, up to {self._patience:g} s"
                )
        if now - self._since < self._patience:
            return None
        waited = f"; gave up after {self._patience:g} s" if self._patience > 0 else ""
        given_up = errors.UnavailableError(f"{describe_failure(self._name, error)}{waited}")
        if self._has_others:
            self._tell(f"{given_up}; going on without it")
        return given_up

    def delay(self) -> float:
        """Gives the seconds to wait before it is asked again: more each time."""
        delay, self._delay = self._delay, min(2.0 * self._delay, LONGEST_DELAY_SECONDS)
        return delay
