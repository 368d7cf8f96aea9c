"""Drops the notes that are not fit to train on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

SILENCE_PEAK = 0.001
"""A note that never gets louder than this (-60 dB of full scale) counts as silent."""
CLIP_PEAK = 0.9995
"""A note with this peak or more counts as clipped."""
DUPLICATE_STEP = 1e-4
"""Audio is rounded to this (-80 dB of full scale) before it is compared: copies that round alike are one."""


class NoteFault(StrEnum):
    """A reason to drop a note."""

    NOT_FINITE = "not finite"
    SILENT = "silent"
    CLIPPED = "clipped"
    DUPLICATE = "duplicate"
    SAME_CELL = "another instrument's sound"


@dataclass
class Cleaner:
    """Drops notes that teach nothing, looking at one note at a time and remembering those it has seen."""

    silence_peak: float = SILENCE_PEAK
    clip_peak: float = CLIP_PEAK
    _seen: set[bytes] = field(default_factory=set, repr=False)
    _cells: dict[tuple[int, bytes], str] = field(default_factory=dict, repr=False)

    def audio_fault(self, audio: NDArray[np.float32]) -> NoteFault | None:
        """Returns what is wrong with the audio [samples] by itself."""
        if not np.isfinite(audio).all():
            return NoteFault.NOT_FINITE
        peak = float(np.abs(audio).max(initial=0.0))
        if peak < self.silence_peak:
            return NoteFault.SILENT
        return NoteFault.CLIPPED if peak >= self.clip_peak else None

    def repeat_fault(
        self, digest: bytes, instrument: str, pitch: int, cell_digest: bytes
    ) -> NoteFault | None:
        """Returns a fault if this sound has been seen before; if not, remembers it."""
        if cell_digest and self._cells.setdefault((pitch, cell_digest), instrument) != instrument:
            return NoteFault.SAME_CELL
        if digest in self._seen:
            return NoteFault.DUPLICATE
        self._seen.add(digest)
        return None


def audio_digest(audio: NDArray[np.float32]) -> bytes:
    """Returns sixteen bytes that are equal for two recordings [samples] that round to the same values."""
    rounded = np.rint(audio / DUPLICATE_STEP).astype("<i4")
    return hashlib.sha256(rounded.tobytes()).digest()[:16]
