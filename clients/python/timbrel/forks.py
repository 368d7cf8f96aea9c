"""Clients and forks: a client belongs to the process that made it, and gRPC is told to leave forks alone.

To be imported before gRPC is, which reads its variable once. Unasked, gRPC's C half restarts its threads in
every forked child, and one in seven children of a process that has called a server crashes, whatever it was
forked for. Asked to support forks (GRPC_ENABLE_FORK_SUPPORT=1) it ends every child that is forked while an
asynchronous channel is open, programs started with a `preexec_fn` among them. Told not to, it harms none of
them; only, no child of a process that called a server can call one itself, and `ForkGuard` says so.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# What a caller needs to know is in the errors raised: that a private server ends with its client, which gRPC
# else tells on standard error, is no news. `timbrel serve` imports this first, too: see timbrel_server.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_HELP = "make clients after the fork, not before, or have multiprocessing start its processes by 'spawn'"

_callers: list[int] = []
"""The process that opened the first connection: this one, or one that it was forked from."""


def about_to_connect() -> None:
    """Notes that this process calls servers. To be called before a connection is opened. Raises RuntimeError:
    this process was forked from one that had opened one."""
    _check_parents()
    if not _callers:
        _callers.append(os.getpid())


class ForkGuard:
    """Remembers which process made a client, and refuses its use in another."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client is neither copied nor sent to another process: make another one there")

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that made it, and no forked child of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises RuntimeError: this is a forked child, and its parent's connections and locks are of no use
        here; the client was made in a child whose parent had called a server; or the threads of this process
        are none: gRPC, and the loop of the blocking clients, would wait for them in vain."""
        if not self.is_at_home:
            raise RuntimeError(
                f"this client was made by process {self._pid} and cannot be used in a forked child of it"
                f" (process {os.getpid()}): {_HELP}"
            )
        _check_parents()
        _check_threads()


def _check_parents() -> None:
    if _callers and _callers[0] != os.getpid():
        raise RuntimeError(
            f"process {os.getpid()} was forked from process {_callers[0]}, which had called a server by then:"
            f" no client works here; {_HELP}"
        )


def _check_threads() -> None:
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    for name, is_patched in (
        ("gevent", gevent is not None and gevent.is_module_patched("threading")),
        ("eventlet", eventlet is not None and eventlet.is_monkey_patched("thread")),
    ):
        if is_patched:
            raise RuntimeError(
                f"{name} has replaced the threads of this process, and gRPC would wait for ever: call servers"
                " from a process that it has not patched"
            )
