"""A TCP proxy that can be cut: connections break or fall silent, and while it is down none is taken."""

from __future__ import annotations

import contextlib
import socket
import threading


class CutProxy:
    """Listens on a free loopback port and passes bytes on to `target`, until it is closed."""

    def __init__(self, target: str) -> None:
        """
        Args:
            target: HOST:PORT; may be changed later, for connections to come.
        """
        self.target = target
        self.n_connections = 0
        """Connections taken so far."""
        self.n_turned_away = 0
        """Connections broken at once, since it was down."""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._is_down = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread that accepts would take one more
        self._listener.close()
        self.go_down()

    def cut(self) -> None:
        """Breaks every connection; new ones are taken."""
        with self._lock:
            sockets, self._open = self._open, set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def forget(self) -> None:
        """Every connection falls silent, as where a router has forgotten it; new ones are taken."""
        with self._lock:
            self._forgotten |= self._open

    def go_down(self) -> None:
        """Breaks every connection, and new ones at once."""
        with self._lock:
            self._is_down = True
        self.cut()

    def come_up(self) -> None:
        """Takes connections again."""
        self._is_down = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        host, port = self.target.rsplit(":", 1)
        if not self._is_down:
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                return
            with self._lock:
                if is_up := not self._is_down:  # it may have gone down meanwhile
                    self.n_connections += 1
                    self._open |= {near, far}
            if is_up:
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()
                return
            far.close()
        self.n_turned_away += 1
        near.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source not in self._forgotten:
                    sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
