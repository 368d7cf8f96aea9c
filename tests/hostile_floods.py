"""Floods: one connection that takes all it can get. It keeps to HTTP/2's windows, and to nothing else."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Callable

from hostile_peer import (
    DATA,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    connect,
    frame,
    message,
)

ACK = 1
INITIAL_WINDOW = 65_535
LARGEST_FRAME = 16_384


class FloodPeer:
    """A connection whose streams are opened and filled as far as their windows allow, and never read."""

    def __init__(
        self, address: str, *, own_window: int = INITIAL_WINDOW, source: str = "", acknowledges: bool = True
    ) -> None:
        """
        Args:
            own_window: bytes of replies that each stream takes.
            source: as of `connect`.
            acknowledges: whether it says that it heard the server's settings.
        """
        self._acknowledges = acknowledges
        self._socket = connect(address, source)
        self._socket.setblocking(False)
        self._read = b""
        self.unsent = bytearray()
        """Bytes that the socket has not taken yet."""
        self._next_stream = 1
        self._window = INITIAL_WINDOW
        self._stream_window = INITIAL_WINDOW  # that new streams get
        self._windows: dict[int, int] = {}
        self._waiting: dict[int, memoryview] = {}  # of bodies that streams share
        self.ended: dict[int, bytes] = {}
        """Streams that the server has ended, with the header block or code that it said last."""
        self.received: dict[int, int] = defaultdict(int)
        """Bytes of replies by stream."""
        self.is_closed = False
        settings = struct.pack(">HI", 4, own_window)
        self.write(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - INITIAL_WINDOW)))

    def __enter__(self) -> FloodPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def write(self, data: bytes) -> None:
        """Sends bytes as they are, as soon as the socket takes them."""
        self.unsent += data

    def open(
        self, path: str, token: str = "", body: bytes = b"", *, encoding: str = "", end: bool = False
    ) -> int:
        """Opens a stream and sends this much of its messages; returns its number."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        further = {"authorization": f"Bearer {token}"} if token else {}
        if encoding:
            further["grpc-encoding"] = encoding
        self.write(call_headers(path, stream, further))
        self._windows[stream] = self._stream_window
        self._waiting[stream] = memoryview(body)
        if end:
            self.pump(lambda: not len(self._waiting[stream]) or stream in self.ended, 10.0)
            self.write(frame(DATA, 1, stream))
        return stream

    def pump(self, until: Callable[[], bool] = lambda: False, seconds: float = 1.0) -> None:
        """Sends and receives until the condition holds, for so many seconds at most."""
        end = time.monotonic() + seconds
        while not self.is_closed and not until() and (left := end - time.monotonic()) > 0:
            self._fill()
            poll = select.poll()  # select takes no descriptor above 1023
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self.unsent else 0))
            events = sum(event for _, event in poll.poll(int(1000 * min(left, 0.05))))
            try:
                if events & select.POLLOUT:
                    del self.unsent[: self._socket.send(self.unsent[: 1 << 20])]
                if events & ~select.POLLOUT:
                    data = self._socket.recv(1 << 20)
                    self.is_closed = not data
                    self._take(data)
            except BlockingIOError:
                continue
            except OSError:
                self.is_closed = True

    def _fill(self) -> None:
        if len(self.unsent) > 1 << 20:
            return
        for stream, waiting in self._waiting.items():
            while len(waiting) and stream not in self.ended:
                n = min(len(waiting), self._window, self._windows[stream], LARGEST_FRAME)
                if n <= 0:
                    break
                self.write(frame(DATA, 0, stream, bytes(waiting[:n])))
                self._waiting[stream] = waiting = waiting[n:]
                self._window -= n
                self._windows[stream] -= n

    def _take(self, data: bytes) -> None:
        read, at = self._read + data, 0
        while len(read) >= at + 9 and len(read) >= (end := at + 9 + int.from_bytes(read[at : at + 3], "big")):
            stream = int.from_bytes(read[at + 5 : at + 9], "big") & 0x7FFFFFFF
            self._act(read[at + 3], read[at + 4], stream, read[at + 9 : end])
            at = end
        self._read = read[at:]

    def _act(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:
                    for known in self._windows:
                        self._windows[known] += value - self._stream_window
                    self._stream_window = value
            if self._acknowledges:
                self.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == DATA:
            self.received[stream] += len(payload)
        if stream and (kind == RST_STREAM or (flags & 1 and kind in (HEADERS, DATA))):
            self.ended.setdefault(stream, payload)


def gzip_bomb(n_bytes: int) -> bytes:
    """A message of so many zeros, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(1 << 20)
    packed = b"".join(packer.compress(piece) for _ in range(n_bytes >> 20)) + packer.flush()
    return message(packed, compressed=1)


class ServerMemory:
    """What a process takes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before = self.resident

    @property
    def resident(self) -> int:
        """Bytes now."""
        return self._field("VmRSS")

    @property
    def peak(self) -> int:
        """Most bytes since the last `forget_peak`."""
        return self._field("VmHWM")

    def forget_peak(self) -> None:
        """Begins anew."""
        self.before = self.resident
        with contextlib.suppress(OSError), open(f"/proc/{self._pid}/clear_refs", "w") as file:
            file.write("5")

    def hold_to(self, n_bytes: int) -> None:
        """Lets the process have so many bytes of address space more than it has now."""
        import resource  # which Windows lacks

        most = self._field("VmSize") + n_bytes
        resource.prlimit(self._pid, resource.RLIMIT_AS, (most, most))

    @property
    def n_files(self) -> int:
        """Open descriptors."""
        return len(os.listdir(f"/proc/{self._pid}/fd"))

    def _field(self, name: str) -> int:
        with open(f"/proc/{self._pid}/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith(name))
        return int(line.split()[1]) << 10
