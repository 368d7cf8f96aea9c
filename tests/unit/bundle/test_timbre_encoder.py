"""A recording to its point, on the tiny bundle's real graphs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soxr

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import TimbreEncoder

RATE = 16_000
NEAR = 0.02
"""On the map, where the three notes lie ten times as far apart, at least."""


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="module")
def encoder(bundle: Bundle) -> TimbreEncoder:
    return TimbreEncoder(bundle, n_threads=1)


@pytest.fixture(scope="module")
def notes(bundle: Bundle) -> list[npt.NDArray[np.float32]]:
    """Three steady sounds that the codec can make, whose estimated pitch stands firm."""
    decoder = CodecDecoder(bundle, n_threads=1)
    frames = ([9, 34, 39, 8], [42, 5, 14, 54], [24, 52, 60, 15])
    return [decoder.decode(np.tile(np.array(frame, np.uint16), (40, 1))) for frame in frames]


def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return math.dist(one, other)


def test_points_lie_in_the_disc_and_apart(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    points = [encoder.locate(note, RATE) for note in notes]
    assert all(math.hypot(*point) <= 1.0 + 1e-6 for point in points)
    assert min(distance(points[i], points[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > 10 * NEAR


@pytest.mark.parametrize("decibels", [-12, -6, 6, 12])
def test_the_level_does_not_move_the_point(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]], decibels: float
) -> None:
    gain = np.float32(10 ** (decibels / 20))
    for note in notes:
        assert distance(encoder.locate(gain * note, RATE), encoder.locate(note, RATE)) < 1e-3


def test_stereo_another_rate_and_silence_hardly_move_the_point(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    for note in notes:
        stereo = np.stack([0.5 * note, note], axis=1)
        recording = np.pad(soxr.resample(stereo, RATE, 44_100), ((22_050, 11_025), (0, 0)))
        assert distance(encoder.locate(recording, 44_100), encoder.locate(note, RATE)) < NEAR


def test_the_pitch_is_a_hint_to_the_codec(
    encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]
) -> None:
    assert distance(encoder.locate(notes[0], RATE, 60.0), encoder.locate(notes[0], RATE, 84.0)) > 1e-3


def test_what_is_no_note_is_refused(encoder: TimbreEncoder, notes: list[npt.NDArray[np.float32]]) -> None:
    with pytest.raises(AudioError, match="silent"):
        encoder.locate(np.zeros(RATE, np.float32), RATE)
    with pytest.raises(AudioError, match="sample rate of 0 Hz"):
        encoder.locate(notes[0], 0)
    with pytest.raises(ValueError, match="is not a MIDI note number"):
        encoder.locate(notes[0], RATE, 200.0)
