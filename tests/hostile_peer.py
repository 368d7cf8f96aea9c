"""A peer that speaks HTTP/2 as it pleases: whole frames, half messages, or noise."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame of RFC 9113."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def call_headers(path: str, stream: int = 1, further: Mapping[str, str] | None = None) -> bytes:
    """The headers that begin a gRPC call, each literal and without a table (RFC 7541, 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **(further or {}),
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    return frame(HEADERS, END_HEADERS, stream, block)


def message(body: bytes, announced: int | None = None, compressed: int = 0) -> bytes:
    """gRPC's length-prefixed message; `announced` bytes instead of those that follow."""
    return struct.pack(">BI", compressed, len(body) if announced is None else announced) + body


def attacks(chance: random.Random) -> list[bytes]:
    """What to send on one connection each."""
    path = "/timbrel.v1.Synthesizer/Generate"
    begin = PREFACE + frame(SETTINGS, 0, 0) + call_headers(path)
    noise = chance.randbytes(chance.randrange(1, 2000))
    return [
        noise,
        PREFACE + noise,
        PREFACE + frame(SETTINGS, 0, 0) + noise,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,  # a TLS handshake
        begin,  # and never a message
        begin + frame(DATA, END_STREAM, 1),
        begin + frame(DATA, END_STREAM, 1, message(b"\x08", announced=1000)),
        begin + frame(DATA, 0, 1, message(b"\x08" * 10, announced=1 << 31)),
        begin + frame(DATA, END_STREAM, 1, message(b"\x08\x01", compressed=1)),
        begin + frame(DATA, END_STREAM, 1, message(noise)),
        begin + frame(DATA, END_STREAM, 1, message(noise) * 3),  # three requests where one is due
        begin + frame(DATA, 0, 1, message(b"")) + frame(RST_STREAM, 0, 1, struct.pack(">I", 8)),
        begin + frame(DATA, 0, 7, message(b"")),  # a stream that is none
        PREFACE + frame(SETTINGS, 0, 0) + frame(CONTINUATION, 0, 1, noise),
        PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, noise[:500]),
        PREFACE + frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"8 bytes.") * 200,
        PREFACE + frame(SETTINGS, 0, 0) * 200,
        begin + frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 2**31 - 1)) * 3,
        PREFACE + frame(SETTINGS, 0, 0) + call_headers("/" + "x" * 100) + frame(DATA, END_STREAM, 1, b""),
        PREFACE
        + b"".join(  # begun and given up at once, over and over
            call_headers(path, 2 * n + 1) + frame(RST_STREAM, 0, 2 * n + 1, struct.pack(">I", 8))
            for n in range(20)
        ),
    ]


def connect(address: str, source: str = "") -> socket.socket:
    """A connection to HOST:PORT, from an address of this machine's where one is named."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 10.0, (source, 0) if source else None)


def send_and_leave(address: str, data: bytes, linger_seconds: float = 0.02) -> None:
    """Sends, listens a moment, and hangs up."""
    with contextlib.suppress(OSError), connect(address) as peer:
        peer.sendall(data)
        peer.settimeout(linger_seconds)
        peer.recv(1 << 16)
