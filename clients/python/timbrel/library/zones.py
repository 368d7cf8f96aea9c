"""Which keys and velocities each sample is for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

LONE_REACH = 6
"""Semitones that the only pitch of an instrument is stretched either way."""


def key_zones(pitches: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Pitch -> lowest and highest key, without gaps; the outermost reach as far outwards as inwards.

    Args:
        pitches: MIDI note numbers, rising.
    """
    zones = {}
    for index, pitch in enumerate(pitches):
        gap_below = pitch - pitches[index - 1] if index else None
        gap_above = pitches[index + 1] - pitch if index + 1 < len(pitches) else None
        below = _reach_below(gap_below if gap_below is not None else gap_above)
        above = _reach_above(gap_above if gap_above is not None else gap_below)
        zones[pitch] = (max(0, pitch - below), min(127, pitch + above))
    return zones


def velocity_zones(velocities: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Velocity -> lowest and highest velocity of its layer: 1..127 in all, cut halfway between neighbours.

    Args:
        velocities: MIDI velocities, rising.
    """
    cuts = [(one + other) // 2 for one, other in pairwise(velocities)]
    lows, highs = [1, *(cut + 1 for cut in cuts)], [*cuts, 127]
    return dict(zip(velocities, zip(lows, highs, strict=True), strict=True))


def _reach_above(gap: int | None) -> int:
    """Of two neighbours, the lower one gets the key in the middle."""
    return LONE_REACH if gap is None else gap // 2


def _reach_below(gap: int | None) -> int:
    return LONE_REACH if gap is None else (gap - 1) // 2
