"""Repeatable draws: a note's velocity and hold follow from what it is, never from the order of work."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Draw:
    """How one note of a cell is played."""

    velocity: int  # 1..127
    held_seconds: float
    onset: float  # in [0, 1): how far into the time allowed for it the key goes down


def unit_interval(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but `parts`: the leading 53 bits of their SHA-256."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def draw_note(instrument: str, pitch: int, index: int, min_held: float = 0.1, max_held: float = 4.0) -> Draw:
    """Draw number `index` of a cell: velocity and onset uniform, hold log-uniform in seconds."""
    velocity = 1 + int(127 * unit_interval("velocity", instrument, pitch, index))
    spread = unit_interval("held", instrument, pitch, index)
    onset = unit_interval("onset", instrument, pitch, index)
    return Draw(velocity, min_held * math.exp(spread * math.log(max_held / min_held)), onset)
