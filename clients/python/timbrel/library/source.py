"""Where raw notes come from: a server, asked for several at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Protocol, TypeVar

from timbrel.client import Client
from timbrel.errors import OverloadedError, TimbrelError, UnavailableError
from timbrel.library.plan import NoteOrder
from timbrel.library.store import RawNote

MAX_IN_FLIGHT = 64

PATIENCE_SECONDS = 300.0
"""How long a server may be away before the job gives up; it can be taken up again later."""

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0

Name = TypeVar("Name")


class NoteSource(Protocol):
    """Renders raw notes, in any order."""

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        """Takes (name, order) as it has room for, and yields (name, note) as they are done.

        Raises:
            TimbrelError: a note could not be had; none of those yielded is lost.
        """


class ClientSource:
    """Notes by `Client.generate`, a bounded number in flight.

    A server that goes away is waited for: notes in flight are asked for again when it is back.
    """

    def __init__(
        self,
        client: Client,
        n_in_flight: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        tell: Callable[[str], None] = lambda message: None,
    ) -> None:
        """
        Args:
            n_in_flight: notes asked for at once; by default as many as the server has slots, and two.
            patience_seconds: how long the server may be away.
            tell: called with one line when the server goes away, and when it is back.
        """
        self._client = client
        self._n_in_flight = n_in_flight or min(MAX_IN_FLIGHT, client.model().n_slots + 2)
        self._patience = patience_seconds
        self._tell = tell
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._stopped = threading.Event()

    def render(self, orders: Iterable[tuple[Name, NoteOrder]]) -> Generator[tuple[Name, RawNote], None, None]:
        waiting = iter(orders)
        running: dict[Future[RawNote], Name] = {}
        self._stopped.clear()
        pool = ThreadPoolExecutor(self._n_in_flight, thread_name_prefix="timbrel-note")
        try:
            while True:
                for name, order in islice(waiting, self._n_in_flight - len(running)):
                    running[pool.submit(self._render_note, order)] = name
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                # What came is handed out before an error ends it all: nothing that was rendered is lost.
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    yield running.pop(future), future.result()
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)

    def _render_note(self, order: NoteOrder) -> RawNote:
        delay = FIRST_DELAY_SECONDS
        while True:
            try:
                note = self._client.generate(
                    order.timbre,
                    order.pitch,
                    order.velocity,
                    order.seconds,
                    order.seed,
                    temperature=order.sampling.temperature,
                    top_k=order.sampling.top_k,
                    top_p=order.sampling.top_p,
                )
            except (UnavailableError, OverloadedError) as error:
                self._note_absence(error)
                if self._stopped.wait(delay):
                    raise
                delay = min(2.0 * delay, LONGEST_DELAY_SECONDS)
            else:
                self._note_presence()
                return RawNote(note.codes, note.truncated)

    def _note_absence(self, error: TimbrelError) -> None:
        """Raises UnavailableError where the server has been away for longer than the patience lasts."""
        with self._lock:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._tell(f"{error}; waiting for it, up to {self._patience:g} s")
            if now - self._away_since >= self._patience:
                raise UnavailableError(f"{error}; gave up after {self._patience:g} s") from error

    def _note_presence(self) -> None:
        with self._lock:
            if self._away_since is not None:
                self._away_since = None
                self._tell("the server is back")
