"""The store of tokenised notes: one memory-mapped file.

    bytes 0..7      magic "TIMBTOK1"
    bytes 8..11     version, uint32
    bytes 12..15    length of the header in bytes, uint32
    header          JSON: the codec, instruments, sources, and counts
    index           at the next multiple of 64: one ROW a note
    codes           at the next multiple of 64: uint16 [frames of all notes, codebooks]

All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timbrel_training.errors import TrainingError

MAGIC = b"TIMBTOK1"
VERSION = 1
PREFIX = struct.Struct("<8sII")
ALIGNMENT = 64

ROW = np.dtype(
    [
        ("offset", "<i8"),  # first frame, counted from the start of the codes
        ("n_frames", "<i4"),
        ("held_frames", "<i4"),  # frames with the key down; a note that dies away earlier has fewer frames
        ("instrument", "<i2"),  # index into the header's instruments
        ("source", "<i2"),  # index into the header's sources
        ("pitch", "u1"),  # MIDI note number
        ("velocity", "u1"),  # 1..127
        ("split", "u1"),  # timbrel_training.notes.split.Split
        ("cut", "u1"),  # 1: still sounding where the codes end, so that no EOS follows
    ]
)


class StoreError(TrainingError):
    """A token store is missing, damaged or made for something else; the message is one line."""


@dataclass(frozen=True)
class TokenHeader:
    """The codec that a store's codes belong to."""

    codec_id: str
    codec_hash: str  # of the codec's weights: codes of another training are other codes
    sample_rate: int  # Hz
    hop_length: int  # samples a frame
    n_codebooks: int
    codebook_size: int
    codes_per_semitone: int = 0  # of codebook 0, where it codes the fundamental; see CodebookLayout
    code_offset: int = 0
    lead_frames: int = 0  # at a note's start, without sound
    held_codes: tuple[int, ...] = ()  # by codebook, said while the key is held alone; see Codec
    released_codes: tuple[int, ...] = ()  # by codebook, of notes that are written; see Codec
    codebook_delay: int = 1  # frames by which each codebook runs behind the one before it
    repeats: bool = True  # codes behind the lead frames leave what these said as it is, nearly always
    codes_like: tuple[str, ...] = ()  # hashes of codecs whose codes mean about the same; see codes_like

    def __post_init__(self) -> None:
        for name in ("held_codes", "released_codes", "codes_like"):  # JSON gives lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    def held_frames(self, seconds: float) -> int:
        """Returns the frames with the key down of a note that is heard to be held for so long."""
        return max(1, round(seconds * self.frame_rate)) + self.lead_frames


def aligned(n_bytes: int) -> int:
    """Returns the next position at or after `n_bytes` where an array may start."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def read_document(path: Path) -> tuple[dict[str, Any], int]:
    """Reads a store's JSON header, and returns it and where the index starts. Raises StoreError: the file is
    missing, not a token store, of another version, or damaged."""
    try:
        with path.open("rb") as file:
            prefix = file.read(PREFIX.size)
            if prefix[: len(MAGIC)] != MAGIC:
                raise StoreError(f"{path}: not a token store (it does not begin with {MAGIC.decode()})")
            if len(prefix) < PREFIX.size:
                raise StoreError(f"{path}: truncated within its header; tokenise the notes again")
            _, version, length = PREFIX.unpack(prefix)
            if version != VERSION:
                raise StoreError(f"{path}: version {version}, this timbrel reads {VERSION}; tokenise again")
            text = file.read(length)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from None
    if len(text) < length:
        raise StoreError(f"{path}: truncated within its header; tokenise the notes again")
    try:
        document = json.loads(text)
    except ValueError:
        raise StoreError(f"{path}: the header is damaged; tokenise the notes again") from None
    if not isinstance(document, dict):
        raise StoreError(f"{path}: the header is damaged; tokenise the notes again")
    return document, aligned(PREFIX.size + length)
