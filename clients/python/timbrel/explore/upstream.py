"""The bridge's side of the gRPC server: one connection, and whether anybody answers there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from timbrel.aio.transport import StreamCall, Transport
from timbrel.core.model import check_manifest
from timbrel.errors import (
    BundleMismatchError,
    DeadlineExceededError,
    MissingExtraError,
    TimbrelError,
    UnavailableError,
)
from timbrel.explore.backend import Backend
from timbrel.explore.faults import fault_of
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

CALL_SECONDS = 60.0
"""Allowed for a note or a recording: the longest note takes seconds, a busy server's queue some more."""

PROBE_SECONDS = 5.0
"""Allowed for the question whether the server is there."""

LOOK_SECONDS = 2.0
"""Between two looks while all is well, and a page is open."""

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 4.0
"""Between looks while the server is away: doubled each time."""

PATIENT_LOOKS = 2
"""Looks in vain before a server of one's own is started anew."""

CLOSING_SECONDS = 0.05
"""gRPC closes its sockets in threads of its own, and complains of a server that ends before that."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class Presence:
    """Whether the server answers."""

    is_serving: bool
    message: str = ""
    """Why not."""


class Upstream:
    """To be entered (`async with`) in the event loop that uses it. Raises subclasses of TimbrelError only."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._transport: Transport | None = None
        self._manifest: pb.Manifest | None = None
        self._presence = Presence(True)
        self._changed = asyncio.Event()
        self._look = asyncio.Event()
        self._n_watchers = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Upstream:
        self._connect()
        self._task = asyncio.create_task(self._watch(), name="upstream")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            await self._transport.close()
            self._transport = None
            await asyncio.sleep(CLOSING_SECONDS)

    @property
    def backend(self) -> Backend:
        """The server that is talked to."""
        return self._backend

    @property
    def presence(self) -> Presence:
        """As far as is known."""
        return self._presence

    async def changed(self, seen: Presence) -> Presence:
        """The first presence that is another than the one seen: waits for it."""
        while self._presence is seen:
            await self._changed.wait()
        return self._presence

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
        """What is served: asked anew each time."""
        model = await self._ask(lambda transport: transport.get_model(timeout))
        check_manifest(model.manifest)
        self._manifest = model.manifest
        return model

    async def manifest(self) -> pb.Manifest:
        """Of the bundle that is served, as far as is known."""
        return self._manifest or (await self.model()).manifest

    async def timbre_map(self) -> pb.TimbreMap:
        return await self._ask(lambda transport: transport.get_timbre_map(CALL_SECONDS))

    async def locate(self, request: pb.LocateRequest) -> pb.LocateResponse:
        return await self._ask(lambda transport: transport.locate(request, CALL_SECONDS))

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateResponse, None]:
        """The replies of one note. Closing the generator early (`aclosing`) gives the note up."""
        try:
            async with contextlib.aclosing(self._connect().generate(request, CALL_SECONDS)) as replies:
                async for reply in replies:
                    yield reply
        except TimbrelError as error:
            self.notice(error)
            raise

    def play(self, requests: AsyncIterator[pb.PlayRequest]) -> StreamCall[pb.PlayResponse]:
        """Opens a Play stream; its errors are to be told by `notice`."""
        return self._connect().play(requests)

    def notice(self, error: TimbrelError) -> None:
        """Takes note of what an error says of the server."""
        if isinstance(error, UnavailableError):
            self._set_presence(Presence(False, fault_of(error).message))
        elif isinstance(error, BundleMismatchError):
            self._manifest = None
            self._look.set()

    def _connect(self) -> Transport:
        if self._transport is None:
            endpoint = self._backend.endpoint
            self._transport = Transport(endpoint.address, endpoint.token, endpoint.security)
        return self._transport

    async def _ask(self, question: Callable[[Transport], Awaitable[_Result]]) -> _Result:
        try:
            return await question(self._connect())
        except TimbrelError as error:
            self.notice(error)
            raise

    def _set_presence(self, presence: Presence) -> None:
        if presence.is_serving == self._presence.is_serving:
            return
        self._presence = presence
        self._look.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        """Looks now and then while all is well and somebody cares, and keeps looking while it is not."""
        n_in_vain = 0
        while True:
            delay = FIRST_DELAY_SECONDS * 2.0 ** (n_in_vain - 1) if n_in_vain else LOOK_SECONDS
            await self._wait(min(delay, LONGEST_DELAY_SECONDS), woken=n_in_vain == 0)
            if self._presence.is_serving and not self._n_watchers:
                continue
            try:
                await self.model(PROBE_SECONDS)
            except (UnavailableError, DeadlineExceededError) as error:
                n_in_vain += 1
                self._set_presence(Presence(False, fault_of(error).message))
                if n_in_vain >= PATIENT_LOOKS:
                    await self._revive()
            except TimbrelError as error:  # somebody is there, who does not do what is asked
                n_in_vain += 1
                self._set_presence(Presence(False, fault_of(error).message))
            else:
                n_in_vain = 0
                self._set_presence(Presence(True))

    async def _wait(self, seconds: float, woken: bool) -> None:
        """Sleeps, less long where somebody asks for a look and `woken` allows it."""
        if not woken:
            await asyncio.sleep(seconds)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._look.wait()
        self._look.clear()

    async def _revive(self) -> None:
        try:
            moved = await self._backend.revive()
        except (UnavailableError, MissingExtraError, OSError):  # of the system: no process, no memory
            return  # the next look tells
        if moved and self._transport is not None:
            old, self._transport = self._transport, None
            await old.close()
