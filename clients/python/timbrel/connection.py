"""The blocking client's connection: made at first need, with all that is asked only once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from timbrel.core.manifest import check_manifest
from timbrel.core.retry import CallBudget, Patience, RetryPolicy
from timbrel.core.timbre import instrument_point
from timbrel.decoder import CODEC_FILES, Decoder
from timbrel.errors import OverloadedError, UnavailableError
from timbrel.files import FileCache
from timbrel.fork_guard import ForkGuard
from timbrel.private_server import PrivateServer
from timbrel.settings import ClientSettings
from timbrel.transport import Transport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

_Result = TypeVar("_Result")


class Connection:
    """A transport to the server, which is started here where none is named. Threads may share one."""

    def __init__(self, settings: ClientSettings, *, show_progress: bool) -> None:
        """
        Args:
            show_progress: show a bar while files are fetched.
        """
        self._settings = settings
        self._show_progress = show_progress
        self._policy = RetryPolicy()
        self._guard = ForkGuard()
        # Guards what is made once, at first need: everything below.
        self._lock = threading.RLock()
        self._closed = False
        self._private_server: PrivateServer | None = None
        self._transport: Transport | None = None
        self._model: pb.GetModelResponse | None = None
        self._map: pb.TimbreMap | None = None
        self._decoder: Decoder | None = None

    @property
    def private_server(self) -> PrivateServer | None:
        """The server that was started here, if there is one."""
        return self._private_server

    def open(self) -> Transport:
        """The transport.

        Raises:
            RuntimeError: it was closed, or this is a forked child.
        """
        self._guard.check()  # before the lock, which a thread of the parent may hold for ever
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            if self._transport is None:
                self._transport = self._connect()
            return self._transport

    def close(self) -> None:
        """Ends the connection, and the private server if there is one."""
        if not self._guard.is_at_home:
            return  # both are the parent's
        self._closed = True
        if (transport := self._transport) is not None:
            transport.close()  # before the lock: whoever holds it may be waiting for an answer
        with self._lock:
            if self._transport is not None:
                self._transport.close()
                self._transport = None
            if self._private_server is not None:
                self._private_server.close()
                self._private_server = None

    def model(self) -> pb.GetModelResponse:
        """What is served; asked once."""
        self._guard.check()
        with self._lock:
            if self._model is None:
                model = self.call(Transport.get_model)
                check_manifest(model.manifest)
                self._model = model
            return self._model

    def timbre_map(self) -> pb.TimbreMap:
        """The named points; asked once."""
        self._guard.check()
        with self._lock:
            if self._map is None:
                self._map = self.call(Transport.get_timbre_map)
            return self._map

    def point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        """The point itself, or the instrument's of this name."""
        return instrument_point(self.timbre_map(), timbre) if isinstance(timbre, str) else timbre

    def decoder(self) -> Decoder:
        """The codec of the bundle, its files fetched; its sessions are made when first used."""
        self._guard.check()
        with self._lock:
            if self._decoder is None:
                self._decoder = self.fetch_codec(self.model().manifest)
            return self._decoder

    def fetch_codec(self, manifest: pb.Manifest) -> Decoder:
        """The codec that this manifest describes. A transfer that breaks is continued where it was."""

        def fetch(transport: Transport, timeout: float | None) -> Path:
            cache = FileCache(
                manifest,
                lambda name, offset: transport.get_file(name, offset, timeout),
                show_progress=self._show_progress,
            )
            return cache.require(CODEC_FILES)

        return Decoder(self.call(fetch))

    def call(self, action: Callable[[Transport, float | None], _Result]) -> _Result:
        """Runs one call within the time allowed, again where the server is overloaded or not there."""
        budget = CallBudget(
            self._policy,
            self._settings.timeout,
            time.monotonic(),
            server_returns=self._private_server is None,
        )
        while True:
            try:
                return action(self.open(), budget.remaining(time.monotonic()))
            except (OverloadedError, UnavailableError) as error:
                delay = budget.delay_after(error, time.monotonic())
            time.sleep(delay)

    def patience(self) -> Patience:
        """For a call of many parts."""
        return Patience(
            self._policy,
            self._settings.timeout,
            time.monotonic(),
            server_returns=self._private_server is None,
        )

    def _connect(self) -> Transport:
        settings = self._settings
        if settings.address is None:
            self._private_server = PrivateServer(settings.bundle)
            settings = settings.at(self._private_server.address, self._private_server.token)
        return Transport(str(settings.address), settings.token, settings.security)
