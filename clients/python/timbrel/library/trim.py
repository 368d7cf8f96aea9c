"""The start and the end of a sample: silence off the start, a fade at the end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from timbrel.library.level import Audio, power_envelope

LEAD_IN_SECONDS = 0.005
"""What is left before the onset: short enough not to be felt, long enough for a fade without a click."""

ONSET_DB = -40.0
"""A note begins where it first comes this near to its loudest moment."""

END_DB = -66.0
"""And ends where it was last this near."""

FADE_SECONDS = 0.05
CUT_FADE_SECONDS = 0.25
"""Of a note that was cut at the bundle's cap while it still sounded."""


@dataclass(frozen=True)
class Trimmed:
    """A note from just before its onset until it has died away."""

    audio: Audio
    """[samples]"""

    removed: int
    """Samples taken off the start; below 0 where silence was put there."""


def trim(audio: Audio, sample_rate: int, truncated: bool = False) -> Trimmed:
    """Cuts a note so that its onset lies LEAD_IN_SECONDS after the start, and fades both ends.

    What is silent altogether stays as it is.
    """
    power = power_envelope(audio, sample_rate)
    loudest = float(power.max(initial=0.0))
    if loudest <= 0.0:
        return Trimmed(audio, 0)
    onset = int(np.argmax(power >= loudest * 10.0 ** (ONSET_DB / 10.0)))
    last = len(power) - 1 - int(np.argmax(power[::-1] >= loudest * 10.0 ** (END_DB / 10.0)))
    fade = round((CUT_FADE_SECONDS if truncated else FADE_SECONDS) * sample_rate)
    # A note that has died away is faded in what lies behind its end, one that was cut before it.
    end = min(len(audio), last + 1 + (0 if truncated else fade))
    lead_in = round(LEAD_IN_SECONDS * sample_rate)
    removed = onset - lead_in
    kept = np.pad(audio[max(0, removed) : end], (max(0, -removed), 0))
    return Trimmed(_faded(kept, lead_in, fade), removed)


def _faded(audio: Audio, n_in: int, n_out: int) -> Audio:
    """Raised cosines at both ends, in place."""
    n_in, n_out = min(n_in, len(audio) // 2), min(n_out, len(audio) // 2)
    if n_in:
        audio[:n_in] *= _rise(n_in)
    if n_out:
        audio[-n_out:] *= _rise(n_out)[::-1]
    return audio


@lru_cache(maxsize=32)
def _rise(n_samples: int) -> Audio:
    """0 to 1, both ends included."""
    turn = np.linspace(0.0, np.pi, n_samples)
    return (0.5 - 0.5 * np.cos(turn)).astype(np.float32)
