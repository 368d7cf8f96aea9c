"""Measures how high a note really sounds, by the swift-f0 pitch tracker."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.errors import MissingExtraError, refusal
from timbrel_bundle.yin import ONSET_SECONDS, midi_pitch

VOICED_CONFIDENCE = 0.5
"""swift-f0's own limit: a frame is voiced from here on."""

IN_TUNE_CENTS = 50.0
"""A note is in tune where it is at most this far from the pitch asked: half a semitone."""


class PitchMeter:
    """Measures the pitch of notes. Build one and use it for all of them. Raises MissingExtraError: swift-f0,
    which the demo extra brings, is not installed."""

    def __init__(self) -> None:
        try:
            from swift_f0 import SwiftF0
        except ImportError as error:
            raise MissingExtraError("measuring pitch", "demo") from error
        # One thread: notes are short, and whoever measures many does so in several processes.
        self._tracker: Any = SwiftF0(threads=1, spin=False)

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """The pitch of audio [samples], mono, as a fractional MIDI note number: the median over the voiced
        frames from 50 ms on; None where nothing is voiced."""
        if len(audio) < ONSET_SECONDS * sample_rate:
            return None
        frames = self._tracker.detect(audio, sample_rate)
        voiced = (frames.confidence >= VOICED_CONFIDENCE) & (frames.timestamps >= ONSET_SECONDS)
        if not voiced.any():
            return None
        return midi_pitch(float(np.median(frames.pitch_hz[voiced])))


_NOTE = re.compile(r"(?P<letter>[A-Ga-g])(?P<sign>#|♯|b|♭)?(?P<octave>-?\d{1,2})")
_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def parse_pitch(text: str) -> int:
    """Reads a MIDI note number, or the name of a note, C4 being 60: "F#3", "Bb2". Raises InvalidRequestError:
    it is neither."""
    text = text.strip()
    if match := _NOTE.fullmatch(text):
        sign = {None: 0, "#": 1, "♯": 1, "b": -1, "♭": -1}[match["sign"]]
        return 12 * (int(match["octave"]) + 1) + _STEPS[match["letter"].upper()] + sign
    try:
        return int(text)
    except ValueError:
        raise refusal("pitch", f"must be a MIDI note number or a note such as C4, got {text!r}") from None


def frequency(pitch: float) -> float:
    """The frequency in Hz of a MIDI note number: 69 is 440 Hz."""
    return 440.0 * math.pow(2.0, (pitch - 69.0) / 12.0)


def is_in_tune(asked: float, measured: float | None) -> bool:
    """Whether a note sounds within 50 cents of the pitch asked; an unvoiced one does not."""
    return measured is not None and abs(measured - asked) * 100.0 <= IN_TUNE_CENTS
