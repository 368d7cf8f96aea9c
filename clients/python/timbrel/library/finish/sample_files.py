"""Sample files: WAV files with what samplers read from them, and those of other formats by libsndfile.

The chunks are `smpl` (key, tuning, loop), `inst` (zones) and `INFO` (texts), after "Multimedia Programming
Interface and Data Specifications 1.0" (IBM and Microsoft, 1991) and its update of 1994. libsndfile, which
writes the sound, writes neither `smpl` nor `inst`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel.library.finish.instrument_files import Region
from timbrel.library.plan.formats import SampleFormat
from timbrel_bundle.audio import checked_mono, checked_rate, whole_samples

LARGEST_BYTES = 2**32 - 1
"""RIFF's sizes are 32 bits wide."""

TOO_LARGE = "such a file holds less than 4 GB"


@dataclass(frozen=True)
class SamplerChunk:
    """The `smpl` chunk, read back."""

    key: int
    """MIDI note number that the sample sounds at, rounded down."""

    cents: float
    """Above that key, 0 to 100."""

    loops: tuple[tuple[int, int], ...]
    """First and last sample of each."""


def sample_bytes(
    audio: npt.NDArray[np.float32],
    sample_rate: int,
    sample_format: SampleFormat,
    region: Region,
    texts: Mapping[str, str],
) -> bytes:
    """Writes a mono file of audio [samples], clipped to -1..1. Raises as `wav_bytes` does."""
    if sample_format.has_sampler_chunks:
        return wav_bytes(audio, sample_rate, region, texts)
    content = io.BytesIO()
    soundfile.write(
        content, checked_mono(audio), sample_rate, sample_format.subtype, format=sample_format.libsndfile
    )
    return content.getvalue()


def wav_bytes(
    audio: npt.NDArray[np.float32], sample_rate: int, region: Region, texts: Mapping[str, str] | None = None
) -> bytes:
    """Writes a mono 24-bit WAV file of audio [samples], finite; samples beyond -1..1 are clipped. Equal
    arguments make equal bytes.

    Texts go by the standard's names, INAM and the like. Raises AudioError: the audio has another shape or
    samples that are no numbers, or the rate is not allowed.
    """
    samples = checked_mono(audio, allow_empty=True)
    content = io.BytesIO()
    # The sound comes before the odd-sized `inst`: Polyphone loses its way behind that one's pad byte.
    soundfile.write(content, whole_samples(samples) << 8, checked_rate(sample_rate), "PCM_24", format="WAV")
    sound = content.getvalue()
    chunks = riff_chunk(b"smpl", _smpl(sample_rate, region)) + riff_chunk(b"inst", _inst(region))
    if texts:
        said = (riff_chunk(name.encode(), text.encode() + b"\0") for name, text in sorted(texts.items()))
        chunks += riff_chunk(b"LIST", b"INFO" + b"".join(said))
    return b"RIFF" + struct.pack("<I", len(sound) - 8 + len(chunks)) + sound[8:] + chunks


def riff_chunk(name: bytes, content: bytes) -> bytes:
    """Frames a chunk. The next one begins at an even offset; the byte that sees to it is not counted. Raises
    ValueError: the content is 4 GB or more."""
    if len(content) > LARGEST_BYTES:
        raise ValueError(TOO_LARGE)
    return struct.pack("<4sI", name, len(content)) + content + bytes(len(content) % 2)


def _smpl(sample_rate: int, region: Region) -> bytes:
    # The chunk states at which pitch the sample sounds, rounded down, and what is above that of a semitone.
    key, cents = region.pitch, -region.tune
    if cents < 0:
        key, cents = key - 1, cents + 100
    fraction = round(cents / 100.0 * 2**32) % 2**32
    period = round(1e9 / sample_rate)
    loops = [] if region.loop is None else [struct.pack("<6I", 0, 0, *region.loop, 0, 0)]
    head = struct.pack("<9I", 0, 0, period, max(0, key), fraction, 0, 0, len(loops), 0)
    return head + b"".join(loops)


def _inst(region: Region) -> bytes:
    # Fine tuning goes from -50 to 50 cents, gain is left at 0 dB.
    tune = min(50, max(-50, region.tune))
    return struct.pack("<BbbBBBB", region.pitch, tune, 0, *region.keys, *region.velocities)


def read_chunks(path: Path) -> dict[str, bytes]:
    """Reads the chunks of a WAV file: name -> content, the sound itself left out. Raises OSError: the file
    cannot be read; ValueError: it is no WAV file, or is cut short."""
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
    """Reads the `smpl` chunk; raises ValueError where it is cut short."""
    try:
        fields = struct.unpack_from("<9I", content)
        loops = [struct.unpack_from("<6I", content, 36 + 24 * index) for index in range(fields[7])]
    except struct.error as error:
        raise ValueError("has a damaged smpl chunk") from error
    return SamplerChunk(fields[3], fields[4] / 2**32 * 100.0, tuple((loop[2], loop[3]) for loop in loops))
