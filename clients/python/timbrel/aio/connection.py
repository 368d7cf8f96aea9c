"""The asynchronous client's connection: made at first need, with all that is asked only once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from timbrel.aio.transport import AsyncTransport
from timbrel.connection import Connection
from timbrel.core.manifest import check_manifest
from timbrel.core.retry import CallBudget, Patience, RetryPolicy
from timbrel.core.timbre import instrument_point
from timbrel.decoder import Decoder
from timbrel.errors import OverloadedError, UnavailableError
from timbrel.fork_guard import ForkGuard
from timbrel.private_server import PrivateServer
from timbrel.settings import ClientSettings
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

_Result = TypeVar("_Result")


class AsyncConnection:
    """A transport to the server, which is started here where none is named; for one event loop."""

    def __init__(self, settings: ClientSettings, *, show_progress: bool) -> None:
        """
        Args:
            show_progress: show a bar while files are fetched.
        """
        self._settings = settings
        self._show_progress = show_progress
        self._policy = RetryPolicy()
        self._guard = ForkGuard()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._private_server: PrivateServer | None = None
        self._transport: AsyncTransport | None = None
        self._model: pb.GetModelResponse | None = None
        self._map: pb.TimbreMap | None = None
        self._decoder: Decoder | None = None
        # Each of these is made once, however many tasks ask for it at once.
        self._making = {name: asyncio.Lock() for name in ("transport", "model", "map", "decoder")}

    @property
    def private_server(self) -> PrivateServer | None:
        """The server that was started here, if there is one."""
        return self._private_server

    async def open(self) -> AsyncTransport:
        """The transport.

        Raises:
            RuntimeError: it was closed, belongs to another event loop, or this is a forked child.
        """
        self._check()
        async with self._making["transport"]:
            self._check()  # it may have been closed meanwhile
            if self._transport is None:
                self._loop = asyncio.get_running_loop()
                self._transport = await self._connect()
            return self._transport

    async def close(self) -> None:
        """Ends the connection, and the private server if there is one."""
        if not self._guard.is_at_home:
            return  # both are the parent's
        self._closed = True
        async with self._making["transport"]:  # a server that is being started is closed too
            if self._transport is not None:
                await self._transport.close()
                self._transport = None
            if self._private_server is not None:
                await asyncio.to_thread(self._private_server.close)
                self._private_server = None

    async def model(self) -> pb.GetModelResponse:
        """What is served; asked once."""
        self._check()
        async with self._making["model"]:
            if self._model is None:
                model = await self.call(AsyncTransport.get_model)
                check_manifest(model.manifest)
                self._model = model
            return self._model

    async def timbre_map(self) -> pb.TimbreMap:
        """The named points; asked once."""
        self._check()
        async with self._making["map"]:
            if self._map is None:
                self._map = await self.call(AsyncTransport.get_timbre_map)
            return self._map

    async def point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        """The point itself, or the instrument's of this name."""
        return instrument_point(await self.timbre_map(), timbre) if isinstance(timbre, str) else timbre

    async def decoder(self) -> Decoder:
        """The codec of the bundle, its files fetched; its sessions are made when first used."""
        self._check()
        async with self._making["decoder"]:
            if self._decoder is None:
                await self.open()
                manifest = (await self.model()).manifest
                self._decoder = await asyncio.to_thread(self._fetch_codec, manifest)
            return self._decoder

    async def call(self, action: Callable[[AsyncTransport, float | None], Awaitable[_Result]]) -> _Result:
        """Runs one call within the time allowed, again where the server is overloaded or not there."""
        budget = CallBudget(
            self._policy,
            self._settings.timeout,
            time.monotonic(),
            server_returns=self._private_server is None,
        )
        while True:
            try:
                return await action(await self.open(), budget.remaining(time.monotonic()))
            except (OverloadedError, UnavailableError) as error:
                delay = budget.delay_after(error, time.monotonic())
            await asyncio.sleep(delay)

    def patience(self) -> Patience:
        """For a call of many parts."""
        return Patience(
            self._policy,
            self._settings.timeout,
            time.monotonic(),
            server_returns=self._private_server is None,
        )

    def _check(self) -> None:
        """Raises RuntimeError where this cannot be used."""
        self._guard.check()
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this client was opened in another event loop: make a timbrel.AsyncClient in each"
            )

    async def _connect(self) -> AsyncTransport:
        settings = self._settings
        if settings.address is None:
            self._private_server = await _start_private_server(settings.bundle)
            self._settings = settings = settings.at(self._private_server.address, self._private_server.token)
        return AsyncTransport(str(settings.address), settings.token, settings.security)

    def _fetch_codec(self, manifest: pb.Manifest) -> Decoder:
        """In a thread, with a connection of its own: the cache's files and locks make their user wait."""
        connection = Connection(self._settings, show_progress=self._show_progress)
        with contextlib.closing(connection):
            return connection.fetch_codec(manifest)


async def _start_private_server(bundle: str | os.PathLike[str] | None) -> PrivateServer:
    """Who is cancelled meanwhile leaves no server behind, even where the event loop ends before it is up."""
    thread = ThreadPoolExecutor(1, "timbrel-start")
    starting = thread.submit(PrivateServer, bundle)
    thread.shutdown(wait=False)
    try:
        return await asyncio.wrap_future(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_close_started)
        raise


def _close_started(starting: Future[PrivateServer]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
