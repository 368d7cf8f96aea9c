"""Servers by fork: a process that has imported all that a server needs, and of which each is a copy.

A server of the tiny bundle spends most of its start on imports, and the tests start hundreds. A copy runs the
same `main` by the same arguments, with an environment, standard streams and an end of its own.

    python forked_servers.py DESCRIPTOR     of a socket that requests come by, and with whose end it ends
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import IO

IS_POSSIBLE = sys.platform == "linux"
READ_AT_ONCE = ("GLIBC_", "GRPC_", "LD_", "MALLOC_", "OMP_", "PYTHON")
MOST_BYTES = 1 << 20
"""Of a request: the environment is the longest part of it."""


class ForkedProcess:
    """A server's process: what the tests use of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[str]) -> None:
        self.args = ["timbrel_server", *arguments]
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        their_input, own_input = os.pipe()
        own_output, their_output = os.pipe()
        request = {"arguments": arguments, "environment": dict(environment), "folder": os.getcwd()}
        data = json.dumps(request).encode()
        given = [their_input, their_output, stderr.fileno(), theirs.fileno()]
        _, requests = _forking(read_at_once(environment))
        socket.send_fds(requests, [data], given)
        theirs.close()
        os.close(their_input)
        os.close(their_output)
        self.stdin = os.fdopen(own_input, "w")
        self.stdout = os.fdopen(own_output)
        [self.pid] = struct.unpack("i", self._status.recv(4))

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The same once it has ended."""
        if (status := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Harmless where it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and word of it is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            [self.returncode] = struct.unpack("i", self._status.recv(4))
            self._status.close()
        return self.returncode


def read_at_once(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Picks what is read as Python begins, or imports modules: a copy can be given no other."""
    return tuple(sorted(each for each in environment.items() if each[0].startswith(READ_AT_ONCE)))


@cache
def _forking(environment: tuple[tuple[str, str], ...]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts the process that is forked, once; it ends with this one. Gives the socket for requests."""
    own, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    command = [sys.executable, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, env={**os.environ, **dict(environment)}, pass_fds=[theirs.fileno()])
    theirs.close()
    return process, own


def fork_on_request(requests: socket.socket) -> bool:
    """Forks a process for each request. Returns in each of them, ready to be run, True; at last False."""
    polled = select.poll()
    polled.register(requests, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for descriptor, _ in polled.poll():
            if descriptor in running:
                pid, status = running.pop(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                polled.unregister(descriptor)
                os.close(descriptor)
                with contextlib.suppress(OSError):  # nobody may ask any more
                    status.send(struct.pack("i", code))
                status.close()
                continue
            data, given, *_ = socket.recv_fds(requests, MOST_BYTES, 4)
            if not data:
                return False
            if (pid := os.fork()) == 0:
                for other, (_, status) in running.items():
                    os.close(other)
                    status.close()
                requests.close()
                _become(json.loads(data), given)
                return True
            for each in given[:3]:
                os.close(each)
            status = socket.socket(fileno=given[3])
            status.send(struct.pack("i", pid))
            watched = os.pidfd_open(pid)
            running[watched] = pid, status
            polled.register(watched, select.POLLIN)


def _become(request: dict[str, object], given: Sequence[int]) -> None:
    """Takes on what a process is begun with."""
    for standard, descriptor in enumerate(given[:3]):
        os.dup2(descriptor, standard)
    for descriptor in given:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(request["folder"]))
    environment, arguments = request["environment"], request["arguments"]
    assert isinstance(environment, dict) and isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is its servers' and the tests'
    import prometheus_client  # noqa: F401

    from timbrel_bundle.runtime import load_runtime
    from timbrel_server.__main__ import main

    load_runtime()
    sys.path.pop(0)  # this folder
    if fork_on_request(socket.socket(fileno=int(sys.argv[1]))):
        sys.exit(main())
