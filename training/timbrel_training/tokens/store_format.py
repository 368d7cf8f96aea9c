"""The file that keeps tokenised notes.

    bytes 0..7      magic "TIMBTOK1"
    bytes 8..11     version, uint32
    bytes 12..15    length of the header in bytes, uint32
    header          JSON: the codec, instruments, sources, and counts
    index           at the next multiple of 64: one ROW a note
    codes           at the next multiple of 64: uint16 [frames of all notes, codebooks]

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

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
    """Which codec the codes belong to."""

    codec_id: str
    codec_hash: str  # of the codec's weights: codes of another training are other codes
    sample_rate: int  # Hz
    hop_length: int  # samples a frame
    n_codebooks: int
    codebook_size: int
    codes_per_semitone: int = 0  # of codebook 0, where it codes the fundamental; see TokenLayout
    code_offset: int = 0

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length


def aligned(n_bytes: int) -> int:
    """The next position at or after `n_bytes` where an array may start."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
