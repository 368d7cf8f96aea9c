"""Talks to the gRPC server over one connection, and watches whether anybody answers there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass

from timbrel import errors
from timbrel.aio.connection import Connection
from timbrel.aio.player import PlayStream, within
from timbrel.core.reply import ReplyLimit
from timbrel.explore.http_common import error_reply
from timbrel.settings import ClientSettings
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

PRIVATE = "private"
"""The name of a private server, in place of its address."""

CALL_SECONDS = 60.0
"""How long a recording may take, and how long nothing may come of a note: forty of them at once, on a machine
that has other work, take as long as they take."""

SAMPLE_BYTES = 4
"""Of a note's sound: float32, or 24 bits and a file's header."""

PROBE_SECONDS = 5.0
"""How long it may take to answer whether the server is there."""

LOOK_SECONDS = 2.0
"""Between two looks while all is well, and a page is open."""

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 4.0
"""Between looks while the server is away: doubled each time."""

PATIENT_LOOKS = 2
"""Looks in vain before a server of one's own is started anew."""


@dataclass(frozen=True)
class Presence:
    """Says whether the server answers, and with which bundle."""

    is_serving: bool
    message: str = ""
    """Why not."""
    bundle_hash: str = ""
    """Empty while it does not answer, and before it was asked."""


class Upstream:
    """Passes questions and notes on to the server; raises subclasses of TimbrelError only.

    To be entered (`async with`) in the event loop that uses it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        """A private server is started where `settings` have no address, and again where it has died."""
        self.name = PRIVATE if settings.address is None else str(settings.address)
        """The server's: HOST:PORT, or "private"."""
        self.bundle = None if settings.bundle is None else os.path.abspath(settings.bundle)
        """The folder of the bundle that a private server was told to serve, from wherever one is."""
        self.presence = Presence(True)
        """Whether it answers, as far as is known."""
        self._connection = Connection(settings, show_progress=False)
        self._manifest: pb.Manifest | None = None
        self._changed = asyncio.Event()
        self._look = asyncio.Event()
        self._n_watchers = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Upstream:
        await self._connection.open()
        self._task = asyncio.create_task(self._watch(), name="upstream")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._connection.close()

    @property
    def settings(self) -> ClientSettings:
        """Says where the server is now, and how to speak with it."""
        return self._connection.settings

    async def changed(self, seen: Presence) -> Presence:
        """Waits for the first presence that is another than the one seen, and returns it."""
        while self.presence is seen:
            await self._changed.wait()
        return self.presence

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While entered, the server is looked at now and then, whether or not anything is asked of it."""
        self._n_watchers += 1
        self._look.set()
        try:
            yield
        finally:
            self._n_watchers -= 1

    async def model(self, timeout: float = CALL_SECONDS) -> pb.GetModelResponse:
        """Asks anew for the model that is served."""
        with self._noticing():
            model = await self._connection.fresh_model(timeout)
        self._manifest = model.manifest
        self._set_presence(Presence(True, bundle_hash=model.manifest.bundle_hash))
        return model

    async def manifest(self) -> pb.Manifest:
        """Returns the manifest of the bundle that is served, as far as is known.

        Who waits for it keeps a page waiting: a server that hangs is asked no longer than to look at it,
        and one that is away not at all.
        """
        if self._manifest is None and not self.presence.is_serving:
            raise errors.UnavailableError(self.presence.message)
        return self._manifest or (await self.model(PROBE_SECONDS)).manifest

    async def timbre_map(self) -> pb.TimbreMap:
        with self._noticing():
            return await self._connection.transport.get_timbre_map(CALL_SECONDS)

    async def locate(self, request: pb.LocateRequest) -> pb.LocateResponse:
        with self._noticing():
            return await self._connection.transport.locate(request, CALL_SECONDS)

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Yields the replies of one note. Closing the generator early (`aclosing`) gives the note up. Raises
        ServerError where they hold more sound than the longest note has."""
        limit = ReplyLimit(await self.manifest(), SAMPLE_BYTES)
        with self._noticing():
            replies = self._connection.transport.generate(request, None)
            async with contextlib.aclosing(replies):
                while (reply := await within(CALL_SECONDS, anext(replies, None))) is not None:
                    limit.take(reply)
                    yield reply

    def play(self, on_end: Callable[[Exception | None], None]) -> PlayStream:
        """Opens a Play stream; its errors, and its notes', are to be told by `notice`."""
        return PlayStream(self._connection.transport, on_end)

    def notice(self, error: errors.TimbrelError) -> None:
        """Takes note of what an error says of the server."""
        if isinstance(error, errors.UnavailableError):
            self._set_presence(Presence(False, error_reply(error).message))
        elif isinstance(error, errors.BundleMismatchError):
            self._manifest = None
            self._look.set()

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except errors.TimbrelError as error:
            self.notice(error)
            raise

    def _set_presence(self, presence: Presence) -> None:
        if presence == self.presence:
            return
        self.presence = presence
        self._look.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        """Looks now and then while all is well and somebody cares, and keeps looking while it is not."""
        n_in_vain = 0
        while True:
            delay = FIRST_DELAY_SECONDS * 2.0 ** (n_in_vain - 1) if n_in_vain else LOOK_SECONDS
            await self._wait(min(delay, LONGEST_DELAY_SECONDS), woken=n_in_vain == 0)
            if self.presence.is_serving and not self._n_watchers:
                continue
            try:
                await self.model(PROBE_SECONDS)
            except errors.TimbrelError as error:
                n_in_vain += 1
                self._set_presence(Presence(False, error_reply(error).message))
                # Where another error comes, somebody is there, who does not do what is asked.
                is_gone = isinstance(error, errors.UnavailableError | errors.DeadlineExceededError)
                if is_gone and n_in_vain >= PATIENT_LOOKS:
                    # What may fail is of the system: no process, no memory. The next look tells.
                    with contextlib.suppress(errors.UnavailableError, errors.MissingExtraError, OSError):
                        await self._connection.restart_server()
            else:
                n_in_vain = 0

    async def _wait(self, seconds: float, woken: bool) -> None:
        """Sleeps, less long where somebody asks for a look and `woken` allows it."""
        if not woken:
            await asyncio.sleep(seconds)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._look.wait()
        self._look.clear()
