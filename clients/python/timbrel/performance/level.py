"""The level of a finished piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbrel.library.render.level import decibels
from timbrel.performance.mix import Stereo

NORMAL_PEAK_DB = -1.0
"""dB of full scale, where a piece is normalised: lossy formats and converters overshoot a little."""


@dataclass(frozen=True)
class Levelled:
    """A piece that a file can hold."""

    audio: Stereo
    """[samples, 2], within -1..1."""

    peak_db: float
    """Before anything was done, in dB of full scale."""

    gain_db: float
    """What was done: 0 for nothing."""


def levelled(audio: Stereo, normalize: bool) -> Levelled:
    """Brings the peak to NORMAL_PEAK_DB where that is asked for or it would clip; else does nothing.

    In place: a long piece is held once.
    """
    peak = max(float(audio.max(initial=0.0)), -float(audio.min(initial=0.0)))
    if peak <= 0.0 or not (normalize or peak > 1.0):
        return Levelled(audio, decibels(peak), 0.0)
    gain_db = NORMAL_PEAK_DB - decibels(peak)
    audio *= np.float32(10.0 ** (gain_db / 20.0))
    return Levelled(audio, decibels(peak), gain_db)
