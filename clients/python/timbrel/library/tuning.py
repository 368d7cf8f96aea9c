"""What two trackers' readings of a note mean: it is left alone, tuned at the sampler, or rendered again."""

from __future__ import annotations

from enum import Enum

FINE_CENTS = 5.0
"""Nearer than this, nobody hears it, and no tracker is surer."""

FAR_CENTS = 50.0
"""Further than this it is another note: half a semitone."""


class Verdict(Enum):
    """What to do about a note's pitch."""

    KEEP = "keep"
    TUNE = "tune"
    AGAIN = "again"


def cents_off(asked: int, heard: float | None) -> float | None:
    """How far above the pitch asked, in cents."""
    return None if heard is None else 100.0 * (heard - asked)


def judge(asked: int, one: float | None, other: float | None) -> Verdict:
    """What both trackers together say about a note; what only one of them says is not acted upon.

    Args:
        asked: MIDI note number.
        one: what the first tracker heard, a fractional MIDI note number; None where it heard no pitch.
        other: what the second heard.
    """
    if one is None or other is None:
        return Verdict.KEEP
    first, second = 100.0 * (one - asked), 100.0 * (other - asked)
    if min(abs(first), abs(second)) > FAR_CENTS:
        return Verdict.AGAIN
    both_fine = all(FINE_CENTS <= abs(cents) <= FAR_CENTS for cents in (first, second))
    return Verdict.TUNE if both_fine and first * second > 0.0 else Verdict.KEEP


def one_settles(asked: int, one: float | None) -> bool:
    """Whether the first tracker's reading decides everything, whatever a second one would hear.

    Within FINE_CENTS of the pitch asked, a note is kept, untuned, and in tune.
    """
    return one is not None and abs(100.0 * (one - asked)) < FINE_CENTS


def correction_cents(asked: int, one: float | None, other: float | None) -> int:
    """Whole cents for a sampler's tune opcode: the nearer reading, undone; 0 where nothing is to be done.

    By neither tracker's reading does it make a note worse.
    """
    if one is None or other is None or judge(asked, one, other) is not Verdict.TUNE:
        return 0
    cents = min((100.0 * (one - asked), 100.0 * (other - asked)), key=lambda each: abs(each))
    return -round(cents)


def is_in_tune(asked: int, one: float | None, other: float | None, tune: int = 0) -> bool:
    """Whether either tracker hears it within half a semitone of the pitch asked, the correction included."""
    cents = [cents_off(asked, heard) for heard in (one, other)]
    return any(each is not None and abs(each + tune) <= FAR_CENTS for each in cents)
