"""Everything that is measured of a raw note before the instrument is finished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from timbrel.library.level import Audio, decibels, power_envelope, rms_db, true_peak
from timbrel.library.loudness import loudness
from timbrel.library.pitch import TrackerPair
from timbrel.library.trim import Trimmed
from timbrel.library.tuning import one_settles

MEASURE_VERSION = 4
"""Of what is kept on disk: to be raised where a figure's meaning changes."""

DROP_DB = 60.0
"""A release is over this far below the level at which the key was let go."""


@dataclass(frozen=True)
class Measurement:
    """One raw note, at its own level."""

    pitch: float | None
    """Fractional MIDI note number by the first tracker; None where it hears none."""

    other_pitch: float | None
    """The same by the second; None, too, where it was not asked."""

    trackers: str
    """Names of those that listened, joined by +."""

    loudness: float
    """LUFS."""

    true_peak: float
    """dB of full scale."""

    decay: float | None
    """dB lost a second while the key is held; None of a key held for too short."""

    release_seconds: float
    """From the end of the hold until it has died away."""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        """Raises TypeError where the values are others than `to_json` gives."""
        return cls(**values)


def measure(
    audio: Audio, trimmed: Trimmed, sample_rate: int, asked: int, held_seconds: float, trackers: TrackerPair
) -> Measurement:
    """Measures a note.

    The second tracker is asked only where the first leaves something to decide: it takes three times as long.

    Args:
        audio: [samples], as it was decoded.
        trimmed: the same without its silent ends.
        asked: MIDI note number.
        held_seconds: how long the key was held.
    """
    pitch, other, names = _rounded(trackers.one.measure(trimmed.audio, sample_rate)), None, trackers.one.name
    if not one_settles(asked, pitch):
        other, names = _rounded(trackers.other.measure(trimmed.audio, sample_rate)), trackers.name
    released = round(held_seconds * sample_rate) - trimmed.removed
    return Measurement(
        pitch=pitch,
        other_pitch=other,
        trackers=names,
        loudness=round(loudness(trimmed.audio, sample_rate), 3),
        true_peak=round(decibels(true_peak(audio, sample_rate)), 3),
        decay=_decay(trimmed.audio, sample_rate, released),
        release_seconds=round(_release(trimmed.audio, sample_rate, released), 3),
    )


def _decay(audio: Audio, sample_rate: int, released: int) -> float | None:
    """dB a second between the second and the last quarter of the hold."""
    quarter = released // 4
    if quarter < 0.1 * sample_rate or released > len(audio) + quarter:
        # Too short to tell, or dead long before the release, which is decay enough.
        return None if quarter < 0.1 * sample_rate else DROP_DB
    early, late = audio[quarter : 2 * quarter], audio[3 * quarter : released]
    return round((rms_db(early) - rms_db(late)) * sample_rate / (2 * quarter), 3)


def _release(audio: Audio, sample_rate: int, released: int) -> float:
    """Seconds from the release until the sound has fallen by DROP_DB."""
    if released >= len(audio):
        return 0.0
    power = power_envelope(audio[max(0, released) :], sample_rate)
    above = np.flatnonzero(power > power[0] * 10.0 ** (-DROP_DB / 10.0))
    return float((above[-1] + 1) / sample_rate) if len(above) else 0.0


def _rounded(pitch: float | None) -> float | None:
    return None if pitch is None else round(pitch, 4)
