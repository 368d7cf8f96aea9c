"""Telemetry: metrics, the page that shows them, and traces, as the configuration asks for them."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from timbrel_server.config import ServerConfig
from timbrel_server.engine.request import EngineObserver
from timbrel_server.limits import Limit
from timbrel_server.options import ConfigError
from timbrel_server.rpc.call_recorder import CallObserver, CallTracer
from timbrel_server.rpc.certificates import Certificates
from timbrel_server.rpc.health import Health
from timbrel_server.rpc.listener import ListenError, join_address, probe
from timbrel_server.served_bundles.served_bundle import BundleRegistry

if TYPE_CHECKING:
    from timbrel_server.observability.metrics import Metrics
    from timbrel_server.observability.tracing import Tracing

_log = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
DISABLED_VARIABLE = "OTEL_SDK_DISABLED"

OTLP_PROTOCOL = "grpc"
OTLP_EXPORTER = "otlp"

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type that Prometheus reads."""

TIMEOUT_SECONDS = 5.0
"""A request has this time to arrive and to be answered."""

LOOK_SECONDS = 0.1
"""So often the page looks for connections that have had their time, and whether it is to end."""

MOST_CONNECTIONS = 32
"""Connections at once to the page, each a thread and an open file."""


class Telemetry:
    """Tells nothing, unless the configuration names a port or a collector for it, or OTEL_* variables do."""

    def __init__(self, config: ServerConfig, environment: Mapping[str, str] = os.environ) -> None:
        """
        Raises:
            ConfigError: prometheus_client or OpenTelemetry is not installed.
        """
        self._config = config
        self._tracing = _make_tracing(config.otlp_endpoint, environment)
        self._metrics: Metrics | None = _make_metrics() if config.metrics_port is not None else None
        self.calls: CallObserver | None = self._metrics.calls if self._metrics is not None else None
        """The observer of calls, if they are counted."""
        self.tracer: CallTracer | None = self._tracing
        """The tracer of calls, if they are traced."""
        self._page: StatusPage | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of the page; empty where there is none."""
        return self._page.address if self._page is not None else ""

    def engine_observer(self, bundle: str) -> EngineObserver:
        """Makes the observer of the engine of the bundle of this name."""
        return self._metrics.engine_observer(bundle) if self._metrics is not None else EngineObserver()

    def count_reload(self, part: str, outcome: str) -> None:
        """Counts an attempt to reload, as `reload.Count` does."""
        if self._metrics is not None:
            self._metrics.reloads.labels(part, outcome).inc()

    def start(
        self,
        bundles: BundleRegistry,
        limits: Sequence[Limit],
        health: Health,
        certificates: Certificates | None,
    ) -> None:
        """Shows the page.

        Raises:
            ListenError: its address cannot be listened on.
        """
        if self._metrics is None or self._config.metrics_port is None:
            return
        self._metrics.watch(bundles, limits, lambda: health.is_ready, certificates)
        host = self._config.metrics_host or self._config.host
        self._page = StatusPage(host, self._config.metrics_port, health, self._metrics.exposition)

    def close(self) -> None:
        """Ends the page, and sends the last spans. Blocks."""
        if self._page is not None:
            self._page.close()
        if self._tracing is not None:
            self._tracing.close()


class Probed(Protocol):
    """Is asked by probes, from any thread."""

    @property
    def is_alive(self) -> bool:
        """Whether the process need not be started anew."""

    @property
    def is_ready(self) -> bool:
        """Whether notes are written."""


class StatusPage:
    """Serves probes and Prometheus. It answers from threads of its own, and so tells even of a stuck event
    loop. It names no caller and no path, and asks for no token: keep it inside."""

    def __init__(self, host: str, port: int, health: Probed, exposition: Callable[[], bytes]) -> None:
        """
        Args:
            exposition: makes the text of /metrics.

        Raises:
            ListenError: the port is taken, or the host is none of this machine's.
        """
        probe(host, port, "--metrics-port")

        class Handler(_StatusHandler):
            answers: ClassVar[Mapping[str, _PageAnswer]] = {
                "/livez": lambda: _state(health.is_alive),
                "/readyz": lambda: _state(health.is_ready),
                "/metrics": lambda: (HTTPStatus.OK, EXPOSITION_TYPE, exposition()),
            }

        try:
            family, *_, address = socket.getaddrinfo(
                host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _BoundedServer(family, address, Handler)
        except OSError as error:
            raise ListenError(f"cannot listen on {join_address(host, port)}: {error.strerror}") from None
        self.address = join_address(host, self._server.server_address[1])
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        threading.Thread(target=serve, name="status-page", daemon=True).start()

    def close(self) -> None:
        """Ends the page."""
        self._server.shutdown()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    """Holds so many connections, each for a limited time. A newcomer finds room: the oldest is closed."""

    daemon_threads = True
    request_queue_size = 128  # else the system keeps a newcomer waiting for seconds, before anybody is asked

    def __init__(
        self, family: socket.AddressFamily, address: Any, handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.address_family = family
        self._lock = threading.Lock()
        self._began: dict[socket.socket, float] = {}  # the oldest first
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Binds, and leaves it at that: http.server would ask a name server what its host is called, and wait
        where none answers."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._began) >= MOST_CONNECTIONS:
                self._hang_up(next(iter(self._began)))
            self._began[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Is called every `LOOK_SECONDS`."""
        with self._lock:
            for request, began in list(self._began.items()):
                if time.monotonic() - began > TIMEOUT_SECONDS:
                    self._hang_up(request)

    def _hang_up(self, request: socket.socket) -> None:
        """Ends what its thread waits for; the thread then closes it."""
        del self._began[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tells the log, unless whoever asked has gone, or was sent away."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("the page at the metrics port cannot answer")


_PageAnswer = Callable[[], tuple[HTTPStatus, str, bytes]]


def _state(good: bool) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "text/plain; charset=utf-8", b"ok\n" if good else b"no\n"


class _StatusHandler(BaseHTTPRequestHandler):
    answers: ClassVar[Mapping[str, _PageAnswer]]
    timeout = TIMEOUT_SECONDS
    server_version = "timbrel"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.answers.get(self.path.partition("?")[0])
        nowhere = (HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"/livez, /readyz or /metrics\n")
        status, content_type, body = answer() if answer is not None else nowhere
        with contextlib.suppress(OSError):  # whoever asked has gone
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_HEAD = do_GET  # `wget --spider` and some load balancers ask so

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a probe every second is not to be told."""


def _make_tracing(endpoint: str | None, environment: Mapping[str, str]) -> Tracing | None:
    """Variables may be set for all that runs on a machine: what they ask in vain is told, and no error."""
    if not (endpoint or _are_traces_asked_for(environment)):
        return None
    if _are_traces_forbidden(environment):
        if endpoint is not None:
            _log.warning("no traces to otlp_endpoint: OTEL_* variables want none")
        return None
    if endpoint is None and (protocol := _other_protocol(environment)):
        _log.warning("no traces: OTEL_* variables ask for %s, and traces go over %s", protocol, OTLP_PROTOCOL)
        return None
    if not _can_trace():
        hint = 'traces need an optional part of timbrel: pip install "timbrel[telemetry]"'
        if endpoint is not None:
            raise ConfigError(f"otlp_endpoint: {hint}")
        _log.warning("no traces, though OTEL_* variables ask for them: %s", hint)
        return None
    try:
        from timbrel_server.observability.tracing import Tracing

        return Tracing(endpoint)
    except Exception as error:  # each variable has its own, some of them raised at import
        reason = f"OpenTelemetry does not take its OTEL_* variables: {error}"
        if endpoint is not None:
            raise ConfigError(f"otlp_endpoint: {reason}") from None
        _log.warning("no traces: %s", reason)
        return None


def _are_traces_forbidden(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables want none, whoever else does."""
    return (
        environment.get(DISABLED_VARIABLE, "").strip().lower() == "true"
        or environment.get(EXPORTER_VARIABLE, "").strip().lower() == "none"
    )


def _are_traces_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether those variables name a collector, or the exporter that knows where one is."""
    named = any(environment.get(variable, "").strip() for variable in ENDPOINT_VARIABLES)
    exporters = [each.strip() for each in environment.get(EXPORTER_VARIABLE, "").split(",")]
    return named or OTLP_EXPORTER in exporters


def _other_protocol(environment: Mapping[str, str]) -> str:
    """Returns the protocol that those variables ask for, where it is not the one spoken here; else empty."""
    asked = next((environment[name] for name in PROTOCOL_VARIABLES if environment.get(name)), OTLP_PROTOCOL)
    return "" if asked == OTLP_PROTOCOL else asked


def _can_trace() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.grpc.trace_exporter") is not None
    except ModuleNotFoundError:  # of a package above
        return False


def _make_metrics() -> Metrics:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError('metrics_port needs an optional part of timbrel: pip install "timbrel[metrics]"')
    from timbrel_server.observability.metrics import Metrics

    return Metrics()
