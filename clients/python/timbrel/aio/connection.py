"""The client's connection: made at first need, with all that is asked only once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from timbrel import files
from timbrel.aio.decoding import SharedDecoding
from timbrel.aio.transport import Transport
from timbrel.core.request import NoteRequest, Timbre, placed_to_pb
from timbrel.core.retry import ATTEMPTS_UNAVAILABLE, Patience
from timbrel.core.timbre import instrument_point
from timbrel.decoder import CODEC_FILES, Decoder
from timbrel.errors import DeadlineExceededError, OverloadedError, UnavailableError, within_allowed
from timbrel.forks import ForkGuard
from timbrel.private_server import PrivateServer
from timbrel.settings import DEFAULT_TIMEOUT_SECONDS, ClientSettings, Security
from timbrel.threads import start_in_thread
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

_Result = TypeVar("_Result")


class Connection:
    """A transport to the server, which is started here where none is named; for one event loop.

    Beside what the clients ask through it, it gives the package's other parts the bare protobuf messages:
    `transport` makes single calls, `fresh_model` asks anew, and `restart_server` replaces a server that died.
    """

    def __init__(self, settings: ClientSettings, *, show_progress: bool) -> None:
        """`show_progress` shows a bar while files are fetched."""
        self.guard = ForkGuard()
        self.settings = settings
        """Where the server is, and how to speak with it; of a private one once that was started."""
        self._show_progress = show_progress
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.private_server: PrivateServer | None = None
        """The server that was started here, if there is one."""
        self._transport: Transport | None = None
        self._known: dict[str, Any] = {}
        """What was asked for once: model, map, decoder."""
        self.decoding = SharedDecoding()
        """The codec for notes that are heard as they come, even behind `close`."""
        # Each of these is made once, however many tasks ask for it at once.
        self._making = {name: asyncio.Lock() for name in ("transport", "model", "map", "decoder")}

    @property
    def timeout(self) -> float | None:
        """Seconds that a server may take for a call, or give nothing of a note; None: without bound."""
        return self.settings.timeout

    @property
    def transport(self) -> Transport:
        """The open transport, whose calls are not made again; raises RuntimeError where there is none."""
        self._check()
        if self._transport is None:
            raise RuntimeError("this client is not open")
        return self._transport

    async def open(self) -> Transport:
        """The transport, opened where it is not yet. Raises RuntimeError: it was closed, belongs to another
        event loop or is awaited in none, or this is a forked child."""
        self._check()
        async with self._making["transport"]:
            self._check()  # it may have been closed meanwhile
            if self._transport is None:
                self._loop = _running_loop()
                is_private = self.settings.address is None
                server = await _start_private_server(self.settings.bundle) if is_private else None
                self._transport = self._transport_to(server)
            return self._transport

    async def close(self) -> None:
        """Ends the connection, and the private server if there is one."""
        if not self.guard.is_at_home:
            return  # both are the parent's
        self._closed = True
        async with self._making["transport"]:  # a server that is being started is closed too
            if self._transport is not None:
                await self._transport.close()
                self._transport = None
            try:
                await asyncio.to_thread(self.close_server)
            except RuntimeError:  # the program is ending, and starts no more threads
                self.close_server()

    def close_server(self) -> None:
        """Ends the private server, if there is one: all that is left to do where the event loop has ended."""
        if self.private_server is not None:
            self.private_server.close()
            self.private_server = None

    async def restart_server(self) -> None:
        """Starts a private server anew, and goes on there: what the old one said is forgotten, and its calls
        are ended. Raises MissingExtraError, UnavailableError, OSError: it does not start."""
        self._check()
        if self.private_server is None:
            return  # it is not ours to start
        await asyncio.to_thread(self.private_server.close)
        server = await _start_private_server(self.settings.bundle)
        async with self._making["transport"]:
            self._known = {}
            old, self._transport = self._transport, self._transport_to(server)
            if old is not None:
                await old.close()

    async def fresh_model(self, timeout: float | None) -> pb.GetModelResponse:
        """Asks once more what is served, within so many seconds, and remembers that from then on."""
        model = await (await self.open()).get_model(timeout)
        self._known["model"] = model
        return model

    async def model(self, patience: Patience | None = None) -> pb.GetModelResponse:
        """Says what is served; asked once, within the time allowed or what is left of it."""
        return await self._once("model", lambda left: self.call(Transport.get_model, left), patience)

    async def timbre_map(self) -> pb.TimbreMap:
        """The named points; asked once."""
        return await self._once("map", lambda left: self.call(Transport.get_timbre_map, left))

    async def point(self, timbre: Timbre) -> tuple[float, float]:
        """The point itself, or the instrument's of this name."""
        return instrument_point(await self.timbre_map(), timbre) if isinstance(timbre, str) else timbre

    async def placed(self, note: NoteRequest) -> tuple[NoteRequest, pb.GenerateRequest, pb.Manifest]:
        """The note at its point and with a seed, its message, and the manifest that both go by. Raises
        InvalidRequestError: the map has no instrument of this name, or a field is out of range."""
        timbres: list[object] = [timbre for _, timbre in note.path] or [note.timbre]
        named = any(isinstance(timbre, str) for timbre in timbres)
        timbre_map = await self.timbre_map() if named else pb.TimbreMap()
        manifest = (await self.model()).manifest
        return *placed_to_pb(note.seeded(), timbre_map, manifest), manifest

    async def decoder(self) -> Decoder:
        """The codec of the bundle, its files fetched; its sessions are made when first used."""
        return await self._once("decoder", self._fetch_codec)

    async def call(
        self,
        action: Callable[[Transport, float | None], Awaitable[_Result]],
        patience: Patience | None = None,
    ) -> _Result:
        """Runs one call within the time allowed, or what is left of it, again where the server is overloaded
        or not there."""
        patience = patience or self.patience()
        n_unavailable, full = 0, ""
        while True:
            try:
                return await action(await self.open(), patience.left(time.monotonic()))
            except DeadlineExceededError as error:
                raise DeadlineExceededError(f"{error}{full}") from None
            except (OverloadedError, UnavailableError) as error:
                if isinstance(error, UnavailableError):
                    n_unavailable += 1
                    await self._check_encryption()
                else:
                    full = f"; until then the server was full: {error}"
                delay = patience.delay_after(error, n_unavailable, time.monotonic())
                if delay is None or n_unavailable >= ATTEMPTS_UNAVAILABLE:
                    raise
            await asyncio.sleep(delay)

    async def _once(
        self, name: str, ask: Callable[[Patience], Awaitable[_Result]], patience: Patience | None = None
    ) -> _Result:
        """Asks where it is not known, one task after the other: what those before have waited for a server
        that gives nothing, those behind have waited, too. Raises DeadlineExceededError: it was all the time
        allowed, which begins when a private server has been started."""
        if patience is None:
            await self.open()
            patience = self.patience()
        lock = self._making[name]
        try:
            async with asyncio.timeout(patience.left(time.monotonic())):
                await lock.acquire()
        except TimeoutError:
            raise DeadlineExceededError(
                f"the server at {self.settings.address} gave no answer, which others had asked for before,"
                + within_allowed(patience.limit_seconds)
            ) from None
        try:
            if name not in self._known:
                self._known[name] = await ask(patience)
            known: _Result = self._known[name]
            return known
        finally:
            lock.release()

    async def _check_encryption(self) -> None:
        """Raises UnavailableError where a server that never answered cannot, the way that it was asked."""
        if "model" in self._known or self._transport is None:
            return
        if (reason := await self._transport.why_unavailable()) is not None:
            raise UnavailableError(f"the server at {self.settings.address} is not available: {reason}")

    def patience(self) -> Patience:
        """The time allowed for one call, or between two parts of one, from now on. Who set none bears with
        long notes for longer."""
        return Patience(
            self.settings.timeout,
            time.monotonic(),
            server_returns=self.private_server is None,
            grows_with_notes=self.settings.timeout == DEFAULT_TIMEOUT_SECONDS,
        )

    def _check(self) -> None:
        """Raises RuntimeError where this cannot be used."""
        self.guard.check()
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this client was opened in another event loop: make a timbrel.AsyncClient in each"
            )

    def _transport_to(self, server: PrivateServer | None) -> Transport:
        """The transport to this private server, or to the one that the settings name."""
        if server is not None:
            self.private_server = server
            # On the loopback nothing needs to be encrypted.
            self.settings = self.settings.at(server.address, server.token, Security())
        settings, fate = self.settings, None if server is None else server.fate
        return Transport(str(settings.address), settings.token, settings.security, fate)

    async def _fetch_codec(self, patience: Patience) -> Decoder:
        """The cache's files and locks make their user wait, hence in a thread. What breaks is continued."""
        manifest, loop = (await self.model(patience)).manifest, asyncio.get_running_loop()

        async def fetch(transport: Transport, timeout: float | None) -> Path:
            def receive(name: str, offset: int) -> Iterator[pb.GetFileResponse]:
                return _received_in_thread(transport.get_file(name, offset, timeout), loop)

            cache = files.FileCache(manifest, receive, timeout=timeout, show_progress=self._show_progress)
            return await asyncio.wrap_future(start_in_thread(cache.require, CODEC_FILES))

        return Decoder(await self.call(fetch, patience))


def _received_in_thread(
    replies: AsyncGenerator[pb.GetFileResponse, None], loop: asyncio.AbstractEventLoop
) -> Iterator[pb.GetFileResponse]:
    """The replies of a call that runs in the event loop, for a thread to iterate over."""

    async def receive() -> pb.GetFileResponse | None:
        return await anext(replies, None)

    while (reply := asyncio.run_coroutine_threadsafe(receive(), loop).result()) is not None:
        yield reply


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "no event loop of asyncio runs here: await a timbrel.AsyncClient within one (asyncio.run); under "
            "trio, use a timbrel.Client in a thread"
        ) from None


async def _start_private_server(bundle: str | os.PathLike[str] | None) -> PrivateServer:
    """Starts one; a caller cancelled meanwhile leaves none behind, even if the loop ends before it is up."""
    starting = start_in_thread(lambda: PrivateServer(bundle))
    try:
        return await asyncio.wrap_future(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_close_started)
        raise


def _close_started(starting: Future[PrivateServer]) -> None:
    if starting.exception() is None:
        starting.result().close()
