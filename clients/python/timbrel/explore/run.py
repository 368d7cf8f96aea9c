"""Runs the explorer until it is told to end: one event loop for the page's side and the server's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from timbrel.errors import AuthenticationError, InvalidRequestError, MissingExtraError, TimbrelError
from timbrel.explore.access import AccessMiddleware
from timbrel.explore.app import make_app
from timbrel.explore.instruments import Instruments
from timbrel.explore.options import ExploreOptions, check_certificate, listen
from timbrel.explore.upstream import CALL_SECONDS, PROBE_SECONDS, Upstream
from timbrel.settings import ClientSettings, is_loopback

MAX_MESSAGE_BYTES = 16 * 1024
"""How large one WebSocket message of a page may be: a note takes 200."""

REQUEST_SECONDS = 10.0
"""The time that a request's head has to arrive, and the next one after it."""

MAX_CONNECTIONS = 256
"""Connections at once, of many pages. The one that has waited longest for a request makes room for more."""

GRACE_SECONDS = 2
"""For answers that are being sent when the explorer is told to end."""

INTERRUPTED_STATUS = 130

PAUSE_SECONDS = 0.05
"""Between two tries to accept a connection, where the system lets none through."""

_RESET = re.compile(r"accept_coro|_call_connection_lost")
"""In what Windows's event loop says, with a traceback, of connections that browsers reset."""

_Accepted = TypeVar("_Accepted")

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables one of which is set where a Linux desktop, or a browser of choice, is at hand."""


def explore(options: ExploreOptions) -> int:
    """Serves the page until SIGTERM or the terminal's end (returns 0), or Ctrl-C (130). Raises TimbrelError:
    the port, the certificate or the server cannot be used; nothing is left running."""
    if options.certfile is not None:
        check_certificate(options.certfile, options.keyfile)
    with contextlib.closing(listen(options.host, options.port)) as listener, _ended_by_signals():
        settings = ClientSettings.resolve(
            options.server, None, CALL_SECONDS, options.bundle, None, os.environ
        )
        with asyncio.Runner(loop_factory=_make_loop) as runner:
            return runner.run(_run(options, listener, settings))


class TimedConnection(H11Protocol):
    """A connection of a browser's. It is closed where it waits for a request that does not arrive, and, once
    there are many, where it has waited longest."""

    _waiting_since: float | None = None
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [
                (each._waiting_since, each.transport)
                for each in self.connections
                if isinstance(each, TimedConnection) and each._waiting_since is not None
            ]
            min(waiting, key=lambda each: each[0])[1].abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait(False)

    def _look(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        became_websocket = self.transport.get_protocol() is not self
        self._wait(not is_answering and not became_websocket)

    def _wait(self, waits: bool) -> None:
        """Begins to count when it begins to wait: bytes that come meanwhile make no difference."""
        if waits and self._patience is None:
            self._waiting_since = self.loop.time()
            self._patience = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        elif not waits and self._patience is not None:
            self._patience.cancel()
            self._patience = self._waiting_since = None


class PageServer(uvicorn.Server):
    """Is uvicorn with the signals left to the explorer: it would raise them again once it has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: AccessMiddleware, options: ExploreOptions) -> PageServer:
    """Makes the server: `serve([socket])` starts it on a socket that listens, `should_exit` ends it."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=TimedConnection,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # noise does not get smaller, and every chunk would wait for it
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=options.certfile,
        ssl_keyfile=options.keyfile,
    )
    return PageServer(config)


async def _run(options: ExploreOptions, listener: socket.socket, settings: ClientSettings) -> int:
    """Runs until a signal ends it; returns the exit status."""
    status = 0
    async with Upstream(settings) as upstream, Instruments(upstream) as instruments:
        await _first_look(upstream)
        server = make_server(make_app(upstream, instruments, options), options)

        def stop(wanted: int) -> None:
            """The first signal asks it to end, a second does not wait for anything."""
            nonlocal status
            server.force_exit = server.should_exit
            if not server.should_exit:
                server.should_exit, status = True, wanted

        if threading.current_thread() is threading.main_thread():
            for number in _end_signals():
                _at_signal(number, partial(stop, 0))
            _at_signal(signal.SIGINT, partial(stop, INTERRUPTED_STATUS))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if server.started:
            _announce(options, listener.getsockname()[1])
        await serving
    return status


def _announce(options: ExploreOptions, port: int) -> None:
    """Tells the page's address, warns where the network can reach it, and opens the browser."""
    # Windows, for one, takes nothing of IPv4 at "::".
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    scheme = "http" if options.certfile is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
    with contextlib.suppress(OSError):  # whoever started it may have closed its output
        print(f"explorer: {url}", flush=True)
    if not is_loopback(options.host.lower()):
        _warn("anyone on the network who reaches this port can play, and use the server's time")
        if options.certfile is None:
            _warn(
                "browsers on other machines, phones too, allow AudioWorklet and MIDI over HTTPS only:"
                " give --certfile and --keyfile"
            )
    if options.open_browser and has_display(os.environ):
        threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Tells whether a browser that opens would be seen by anybody."""
    return platform in ("darwin", "win32") or any(environment.get(name) for name in DISPLAYS)


async def _first_look(upstream: Upstream) -> None:
    """Asks the server once: one that is away may come, one that refuses us for good is an error."""
    try:
        await upstream.model(PROBE_SECONDS)
    except (AuthenticationError, InvalidRequestError, MissingExtraError):
        raise
    except TimbrelError as error:
        _warn(f"{error}; the explorer waits for it")


def _make_loop() -> asyncio.AbstractEventLoop:
    """Makes the event loop. Windows's goes on listening, and is silent, where connections are reset."""
    loop = asyncio.new_event_loop()
    if sys.platform == "win32" and isinstance(loop, asyncio.ProactorEventLoop):
        accept = loop._proactor.accept
        loop._proactor.accept = lambda listener: asyncio.ensure_future(accepted(accept, listener))
    loop.set_exception_handler(_report)
    return loop


async def accepted(
    accept: Callable[[socket.socket], Awaitable[_Accepted]], listener: socket.socket
) -> _Accepted:
    """Waits for the next connection, and the next one where it is reset as it is accepted: asyncio's servers
    on Windows close their socket then, and hear nobody any more (python/cpython#93821)."""
    while True:
        try:
            return await accept(listener)
        except OSError:
            if listener.fileno() == -1:  # closed
                raise
            await asyncio.sleep(PAUSE_SECONDS)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports what failed in the loop."""
    if not isinstance(context.get("exception"), OSError) or not _RESET.search(str(context)):
        loop.default_exception_handler(context)


def _end_signals() -> list[signal.Signals]:
    """Signals that end the explorer in order: SIGTERM, SIGHUP of a terminal that is closed, and Windows's
    SIGBREAK, of Ctrl-Break and of programs that end others.

    Under `nohup` SIGHUP is ignored.
    """
    present = [getattr(signal, name) for name in ("SIGHUP", "SIGBREAK") if hasattr(signal, name)]
    return [signal.SIGTERM, *(each for each in present if signal.getsignal(each) is not signal.SIG_IGN)]


def _at_signal(number: signal.Signals, action: Callable[[], None]) -> None:
    """Has the running loop do this at each such signal."""
    loop = asyncio.get_running_loop()

    def come(*_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(action)

    try:
        loop.add_signal_handler(number, action)
    except NotImplementedError:  # Windows
        signal.signal(number, come)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While entered, `_end_signals` end the process, with status 0: also while a server is started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in _end_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _warn(message: str) -> None:
    with contextlib.suppress(OSError):
        print(f"timbrel: {message}", file=sys.stderr, flush=True)
