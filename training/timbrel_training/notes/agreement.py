"""Whether programs of soundfonts sound alike: which of two fonts' programs are one instrument, and how far
instruments that are held out whole lie from those that are trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import SILENCE_PEAK
from timbrel_training.notes.fluid import BLOCK, FluidRenderer
from timbrel_training.notes.log_mel import log_mel, log_mel_distance

SAMPLE_RATE = 24_000
GAIN = 0.8
HELD_BLOCKS = 375
RELEASE_BLOCKS = 150
"""A reference sounding is held for 1 s and recorded for 0.4 s more."""
PITCHES = (40, 52, 64, 76, 88)
VELOCITIES = (50, 100)

Soundings = list[NDArray[np.float32] | None]
"""Log-mel spectra [frames, bands] of one program's reference soundings; None where it is silent."""


@dataclass(frozen=True)
class Neighbour:
    """The program that sounds most like another."""

    program: int
    distance: float  # dB, median log-mel distance


def reference_soundings(font: Path, programs: Iterable[int]) -> dict[int, Soundings]:
    """Each program at five octaves and two velocities; programs that the font lacks are left out.

    Raises:
        SourceError: the font cannot be read, or FluidSynth is not installed.
    """
    renderer = FluidRenderer(font, SAMPLE_RATE, GAIN)
    try:
        return {
            program: _soundings(renderer, program) for program in programs if renderer.has_program(program)
        }
    finally:
        renderer.close()


def distance(first: Soundings, second: Soundings) -> float:
    """Median log-mel distance in dB over the soundings that both have; infinite where there is none."""
    distances = [
        log_mel_distance(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None
    ]
    return float(np.median(distances)) if distances else float("inf")


def nearest(soundings: Soundings, others: Mapping[int, Soundings]) -> Neighbour:
    """The nearest of some other programs."""
    return min(
        (Neighbour(program, distance(soundings, other)) for program, other in others.items()),
        key=lambda neighbour: neighbour.distance,
    )


def _soundings(renderer: FluidRenderer, program: int) -> Soundings:
    renderer.select(program)
    return [_sounding(renderer, pitch, velocity) for pitch in PITCHES for velocity in VELOCITIES]


def _sounding(renderer: FluidRenderer, pitch: int, velocity: int) -> NDArray[np.float32] | None:
    renderer.press(pitch, velocity)
    held = renderer.read(HELD_BLOCKS * BLOCK)
    renderer.let_go()
    audio = np.concatenate([held, renderer.read(RELEASE_BLOCKS * BLOCK)], axis=1).mean(axis=0)
    return log_mel(audio, SAMPLE_RATE) if float(np.abs(audio).max()) >= SILENCE_PEAK else None
