"""A take: one sounding that is judged, as the source, the codec or the bundle has it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Kind(StrEnum):
    """Where a take's sound comes from."""

    SOURCE = "source"
    RECONSTRUCTION = "reconstruction"  # the source through the codec and back
    GENERATED = "generated"


@dataclass(frozen=True)
class Take:
    """What is played, and by whom. Equal takes are one sound, whichever section asked for them."""

    kind: Kind
    pitch: int  # MIDI note number
    velocity: int  # 1..127
    seconds: float  # how long the key is held
    row: int = -1  # note of the library; -1 for generated takes
    timbre: tuple[float, float] = (0.0, 0.0)  # point of the map, of generated takes
    draw: int = 0  # tells apart generated takes that differ in their seed alone

    @cached_property
    def id(self) -> str:
        """Names the take in file names: made of what it is, never of the order of work."""
        if self.kind is not Kind.GENERATED:
            return f"{self.kind}-{self.row:06d}"
        return f"{self.kind}-{self._digest.hex()[:20]}"

    @property
    def seed(self) -> int:
        """The seed it is written with: a hash of its id."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:8], "big")

    @property
    def _digest(self) -> bytes:
        x, y = self.timbre
        text = f"{x:.6f} {y:.6f} {self.pitch} {self.velocity} {self.seconds:.4f} {self.draw}"
        return hashlib.sha256(text.encode()).digest()
