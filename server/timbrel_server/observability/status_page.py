"""The status page: /livez, /readyz and /metrics over plain HTTP, on a port of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from timbrel_server.rpc.health import Health
from timbrel_server.rpc.listener import ListenError, join_address, probe

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type that Prometheus reads."""

TIMEOUT_SECONDS = 5.0
"""A request has this time to arrive."""


class StatusPage:
    """Serves probes and Prometheus. It answers from threads of its own, and so tells even of a stuck event
    loop. It names no caller and no path, and asks for no token: keep it inside."""

    def __init__(self, host: str, port: int, health: Health, exposition: Callable[[], bytes]) -> None:
        """
        Args:
            exposition: makes the text of /metrics.

        Raises:
            ListenError: the port is taken, or the host is none of this machine's.
        """
        probe(host, port, "--metrics-port")

        class Handler(_Handler):
            answers = _answers(health, exposition)

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = Server((host.strip("[]"), port), Handler)
        except OSError as error:
            raise ListenError(f"cannot listen on {join_address(host, port)}: {error.strerror}") from None
        self.address = join_address(host, self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="status-page", daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()


_Answer = Callable[[], tuple[HTTPStatus, str, bytes]]


def _answers(health: Health, exposition: Callable[[], bytes]) -> dict[str, _Answer]:
    def metrics() -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, EXPOSITION_TYPE, exposition()

    return {
        "/livez": lambda: _state(health.is_alive),
        "/readyz": lambda: _state(health.is_ready),
        "/metrics": metrics,
    }


def _state(good: bool) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "text/plain; charset=utf-8", b"ok\n" if good else b"no\n"


class _Handler(BaseHTTPRequestHandler):
    answers: dict[str, _Answer]
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
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A probe every second is nothing to tell."""
