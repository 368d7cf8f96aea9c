"""Ogg streams that are the same each time: libsndfile gives every one a random number."""

from __future__ import annotations

import struct
import zlib

SERIAL = 1
"""The number that all streams get: they are told apart only where several are mixed in one file."""

_HEADER = 27
"""Bytes of a page before its table of segments (RFC 3533, section 6)."""

_SERIAL_AT, _CHECKSUM_AT, _COUNT_AT = 14, 22, 26

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def with_fixed_serial(stream: bytes) -> bytes:
    """A whole Ogg stream with the serial number SERIAL on every page, and the checksums that go with it."""
    content = bytearray(stream)
    start = 0
    while start < len(content):
        n_segments = content[start + _COUNT_AT]
        table = start + _HEADER
        end = table + n_segments + sum(content[table : table + n_segments])
        struct.pack_into("<I", content, start + _SERIAL_AT, SERIAL)
        struct.pack_into("<I", content, start + _CHECKSUM_AT, 0)
        struct.pack_into("<I", content, start + _CHECKSUM_AT, checksum(bytes(content[start:end])))
        start = end
    return bytes(content)


def checksum(page: bytes) -> int:
    """Ogg's CRC of a page: polynomial 0x04c11db7, the highest bit first, begun at 0 and not inverted.

    zlib's has the same polynomial with the lowest bit first: it is handed every byte the other way round.
    """
    mirrored = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(struct.pack("<I", mirrored).translate(_REVERSED), "big")
