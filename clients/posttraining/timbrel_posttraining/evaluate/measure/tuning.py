"""The tuning of a note beside the pitch asked, by two trackers that have nothing in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel.pitch import IN_TUNE_CENTS, PitchMeter
from timbrel_bundle.yin import ONSET_SECONDS, PitchTrack, midi_pitch, track_pitch

WELL_IN_TUNE_CENTS = 15.0
"""A listener begins to hear a held note as out of tune about here."""

LOUD_DB = 30.0
"""The spread and the jumps of the fundamental are those of frames at most this far below the loudest one."""

LEAST_FRAMES = 3
"""A spread needs at least so many frames."""


@dataclass(frozen=True)
class Tuning:
    """The pitch of a note beside the pitch asked."""

    cents: float | None
    """Cents above the pitch asked, by whichever tracker is nearer to it; None where neither hears one."""

    in_tune: bool
    """Within 50 cents by either tracker. A note without a pitch is not."""

    swift_in_tune: bool
    """Within 50 cents by swift-f0, a neural tracker."""

    within_15: bool
    """Within 15 cents by either tracker."""

    octave_error: bool
    """Not in tune, but within 50 cents of one or more whole octaves off by either tracker."""

    spread_cents: float | None
    """Half the width between the 10th and 90th percentile of the fundamental; None of too few frames."""

    jump_cents: float
    """The largest step between neighbouring frames, both voiced and loud; 0 where there is none."""


def measure_tuning(swift: PitchMeter, audio: NDArray[np.float32], sample_rate: int, asked: int) -> Tuning:
    """Measures the tuning of audio [samples] at `sample_rate` Hz, for the MIDI note number asked.

    A tracker's pitch is its median over voiced frames from 50 ms on.
    """
    return tuning_of(asked, swift.measure(audio, sample_rate), track_pitch(audio, sample_rate))


def tuning_of(asked: int, swift: float | None, track: PitchTrack) -> Tuning:
    """Works out the tuning of a note for which swift-f0 found pitch `swift`, a fractional MIDI note number,
    and YIN found `track`."""
    errors = [100.0 * (pitch - asked) for pitch in (swift, _median_pitch(track)) if pitch is not None]
    in_tune = any(abs(error) <= IN_TUNE_CENTS for error in errors)
    spread, jump = _steadiness(track)
    return Tuning(
        cents=min(errors, key=abs, default=None),
        in_tune=in_tune,
        swift_in_tune=swift is not None and abs(100.0 * (swift - asked)) <= IN_TUNE_CENTS,
        within_15=any(abs(error) <= WELL_IN_TUNE_CENTS for error in errors),
        octave_error=not in_tune and any(_is_octave_off(error) for error in errors),
        spread_cents=spread,
        jump_cents=jump,
    )


def _median_pitch(track: PitchTrack) -> float | None:
    kept = track.voiced & (track.seconds >= ONSET_SECONDS)
    return midi_pitch(float(np.median(track.hertz[kept]))) if kept.any() else None


def _steadiness(track: PitchTrack) -> tuple[float | None, float]:
    """Measures spread and largest step of the fundamental, both in cents."""
    loud = track.power >= track.power.max(initial=0.0) * 10.0 ** (-LOUD_DB / 10.0)
    kept = track.voiced & loud & (track.seconds >= ONSET_SECONDS)
    cents = 1200.0 * np.log2(track.hertz)
    neighbours = kept[1:] & kept[:-1]
    jump = float(np.abs(np.diff(cents))[neighbours].max(initial=0.0))
    if np.count_nonzero(kept) < LEAST_FRAMES:
        return None, jump
    low, high = np.percentile(cents[kept], (10.0, 90.0))
    return float(high - low) / 2.0, jump


def _is_octave_off(error_cents: float) -> bool:
    """Tells whether the nearest whole number of octaves is not 0 and within 50 cents."""
    octaves = round(error_cents / 1200.0)
    return octaves != 0 and abs(error_cents - 1200.0 * octaves) <= IN_TUNE_CENTS
