"""What a WAV file says to a sampler, read back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple


class SamplerChunk(NamedTuple):
    """The `smpl` chunk."""

    key: int
    """MIDI note number that the sample sounds at, rounded down."""

    cents: float
    """Above that key, 0 to 100."""

    loops: tuple[tuple[int, int], ...]
    """First and last sample of each."""


def read_chunks(path: Path) -> dict[str, bytes]:
    """Chunk name -> content, the sound itself left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no WAV file, or is cut short.
    """
    with path.open("rb") as file:
        size_of_file = path.stat().st_size
        head = file.read(12)
        if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
            raise ValueError("is no WAV file")
        chunks: dict[str, bytes] = {}
        while len(header := file.read(8)) == 8:
            name, size = struct.unpack("<4sI", header)
            if file.tell() + size > size_of_file:
                raise ValueError(f"is cut short within its chunk {name.decode('latin-1')!r}")
            if name == b"data":
                file.seek(size + size % 2, 1)
            else:
                chunks[name.decode("latin-1")] = file.read(size + size % 2)[:size]
        return chunks


def read_sampler_chunk(content: bytes) -> SamplerChunk:
    """Raises ValueError where the chunk is cut short."""
    try:
        fields = struct.unpack_from("<9I", content)
        loops = [struct.unpack_from("<6I", content, 36 + 24 * index) for index in range(fields[7])]
    except struct.error as error:
        raise ValueError("has a damaged smpl chunk") from error
    return SamplerChunk(fields[3], fields[4] / 2**32 * 100.0, tuple((loop[2], loop[3]) for loop in loops))
