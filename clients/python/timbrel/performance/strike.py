"""A rendered note made ready for the mix: where its attack is, and how long it sounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbrel.library.render.level import LEAD_IN_SECONDS, Audio, envelope, trim
from timbrel.note import Note

ATTACK_DB = -20.0
"""The attack is where a note first comes this near to the loudest moment of its beginning: what precedes it
is breath, bow or the codec's first frame."""

BEGINNING_SECONDS = 0.25
"""A note that swells afterwards still began when it began."""

EARLIEST_SECONDS = 0.008
"""How long before its attack a note may be heard: what rises for longer begins on time and is loud later, as
it would be under a player's hands."""


@dataclass(frozen=True)
class Strike:
    """A note's sound from just before its attack until it has died away."""

    audio: Audio
    """[samples]"""

    attack: int
    """The sample that belongs at the note's time in the score."""

    released: int
    """The sample at which the key was let go; beyond the end for a sound that had died away before."""

    sample_rate: int

    @classmethod
    def of(cls, note: Note) -> Strike:
        """Trims a note's sound and finds its attack."""
        rate = note.sample_rate
        trimmed = trim(note.audio, rate, note.truncated)
        released = round(note.seconds * rate) - trimmed.removed
        return cls(trimmed.audio, find_attack(trimmed.audio, rate), released, rate)


def find_attack(audio: Audio, sample_rate: int) -> int:
    """Where audio [samples], trimmed to its onset, has its attack."""
    beginning = envelope(audio[: round(BEGINNING_SECONDS * sample_rate)], sample_rate)
    loudest = float(beginning.max(initial=0.0))
    if loudest <= 0.0:
        return 0
    attack = int(np.argmax(beginning >= loudest * 10.0 ** (ATTACK_DB / 20.0)))
    return min(attack, round((LEAD_IN_SECONDS + EARLIEST_SECONDS) * sample_rate))
