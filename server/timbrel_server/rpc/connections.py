"""Connections: how many each network has, and how one is cut, for gRPC's Python server does neither.

Where the system does not list a process's files (/proc), they are neither counted nor cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from timbrel_server.config import ServerConfig
from timbrel_server.rpc.call_context import network_of

try:
    import resource
except ImportError:  # not a POSIX system: none bounds a process's files, and sockets are none
    resource = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

RESERVED_FILES = 64
"""Files for everything else: the bundle's, the log, threads' own."""

LOOK_SECONDS = 0.5
"""The pause between two looks at who has how many connections."""

FORGET_SECONDS = 5.0
"""Calls of a connection that has been cut are over by then."""

ROOM_SHARE = 1 / 8
"""Of all connections: this part is kept free of those beyond a share."""


class Address(NamedTuple):
    """The far end of a connection."""

    host: str
    port: int


class Connections:
    """All to one server. Once nearly all are taken, networks that have more than a share lose some: those on
    which no call is, and of these the ones that have been there longest.

    A connection with a call on it stays: calls have limits of their own, and behind a proxy everybody is of
    one network.
    """

    name = "max_connections"
    n_waiting = 0

    def __init__(self, config: ServerConfig) -> None:
        self.most = connections_within_reach(config.max_connections)
        """As many as wanted, or as there are files for."""
        if self.most < config.max_connections:
            n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            text = "max_connections is %d, and not %d: this process may open %d files (ulimit -n)"
            _log.warning(text, self.most, config.max_connections, n_files)
        self._most_each = max(1, int(self.most * config.caller_share))
        self.in_use = 0
        """How many there were at the last look."""
        self.n_refused = 0
        """How many were cut."""
        self._n_calls: Counter[str] = Counter()
        self._cut: set[str] = set()  # since a moment ago
        self._known: dict[int, Address | None] = {}  # by inode, in the order in which they came

    @contextlib.contextmanager
    def call(self, peer: str) -> Iterator[None]:
        """Counts a call on a connection while the block runs; `peer` as of `address_of`."""
        self._n_calls[peer] += 1
        try:
            yield
        finally:
            self._n_calls[peer] -= 1
            if not self._n_calls[peer]:
                del self._n_calls[peer]

    def has_calls(self, peer: str) -> bool:
        """Tells whether a call is on this connection now."""
        return peer in self._n_calls

    async def cut(self, peer: str) -> None:
        """Cuts a connection: gRPC's Python server has no way to end a call whose caller takes no reply, or to
        close a connection. `peer` as of `address_of`; one that was cut a moment ago is left at that."""
        if peer not in self._cut and (address := address_of(peer)) is not None:
            self._cut.add(peer)
            asyncio.get_running_loop().call_later(FORGET_SECONDS, self._cut.discard, peer)
            await asyncio.to_thread(_cut, {address})

    def is_cut(self, peer: str) -> bool:
        """Tells whether this connection was cut a moment ago: its calls come to an end one by one."""
        return peer in self._cut

    async def watch(self, port: int) -> None:
        """Looks at all connections to a port of this machine again and again, until cancelled."""
        while True:
            busy = {address_of(peer) for peer in self._n_calls}
            if beyond := await asyncio.to_thread(self._look, port, busy):
                self.n_refused += await asyncio.to_thread(_cut, beyond)
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, port: int, busy: Collection[Address | None]) -> Collection[Address]:
        """Counts them; returns those to be cut."""
        self._known = _far_ends(port, self._known)
        addresses = [address for address in self._known.values() if address is not None]
        self.in_use = len(addresses)
        if self.in_use <= (1 - ROOM_SHARE) * self.most:
            return ()
        networks: dict[str, list[Address]] = {}
        for address in addresses:
            networks.setdefault(network_of(f"peer:{address.host}"), []).append(address)
        beyond: set[Address] = set()
        for members in networks.values():
            idle = [address for address in members if address not in busy]
            beyond.update(idle[: max(0, len(members) - self._most_each)])
        return beyond


def connections_within_reach(wanted: int) -> int:
    """Returns as many connections as wanted, or as there are files left over: each is an open file. Raises
    the process's own limit as far as it may.

    A server that is out of files can open none to send, and none to read anew.
    """
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_FILES))


def address_of(peer: str) -> Address | None:
    """Reads what gRPC names a peer by, `ipv4:HOST:PORT` or `ipv6:%5BHOST%5D:PORT`; None where it is gone
    already, or has no address."""
    host, _, port = peer.partition(":")[2].replace("%5B", "").replace("%5D", "").rpartition(":")
    return Address(host.removeprefix("::ffff:"), int(port)) if port.isdecimal() else None


def _cut(addresses: Collection[Address]) -> int:
    """Returns how many there were."""
    n_cut = 0
    for descriptor, _ in _sockets():
        with contextlib.suppress(OSError), _opened(descriptor) as connection:
            if _far_end(connection) in addresses:
                connection.shutdown(socket.SHUT_RDWR)
                n_cut += 1
    return n_cut


def _far_ends(port: int, known: dict[int, Address | None]) -> dict[int, Address | None]:
    """Returns by inode where each socket of this process leads, None for what is no connection to the port.
    Those that are known are not asked again, and come first."""
    found: dict[int, int] = {}
    for descriptor, inode in _sockets():
        found[inode] = descriptor
    far_ends = {inode: address for inode, address in known.items() if inode in found}
    for inode, descriptor in found.items():
        if inode not in far_ends:
            with contextlib.suppress(OSError), _opened(descriptor) as connection:
                far_ends[inode] = _far_end(connection, port)
    return far_ends


def _far_end(connection: socket.socket, port: int | None = None) -> Address | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    if port is not None and connection.getsockname()[1] != port:
        return None
    try:
        host, far_port, *_ = connection.getpeername()
    except OSError:  # it listens
        return None
    return Address(host.removeprefix("::ffff:"), far_port)


def _opened(descriptor: int) -> socket.socket:
    """The same socket by one more descriptor. Raises OSError where it has been closed since."""
    own = os.dup(descriptor)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise


def _sockets() -> Iterator[tuple[int, int]]:
    """This process's sockets: descriptors and inodes."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # it has been closed since
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode):
                    yield int(name), status.st_ino
