"""The length a WAV file promises against the bytes it holds: libsndfile reads a cut file without a word."""

from __future__ import annotations

import struct
from typing import BinaryIO

UNKNOWN_SIZE = 0x7FFF0000
"""Sizes from here up stand for "not known yet": writers that cannot seek put them there."""


def missing_bytes(file: BinaryIO) -> int:
    """Bytes of sound that a WAV's header promises and the file lacks; 0 for whole files and other formats."""
    file.seek(0)
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return 0
    size_of_file = file.seek(0, 2)
    position = 12
    while position + 8 <= size_of_file:
        file.seek(position)
        name, size = struct.unpack("<4sI", file.read(8))
        if name == b"data":
            return 0 if size >= UNKNOWN_SIZE else max(0, position + 8 + size - size_of_file)
        position += 8 + size + size % 2
    return 0
