"""Timbres that move, on the bundle that ships: how soon, how evenly, in tune all the way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

import timbrel
from timbrel_bundle.yin import Yin
from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

PAIRS = [("Violin", "Trumpet"), ("Oboe", "Acoustic Guitar (nylon)"), ("Flute", "Cello"), ("Clarinet", "Oboe")]
PITCH = 60
RATE = 48_000
STEP = RATE // 100
Audio = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def client() -> Iterator[timbrel.Client]:
    with timbrel.Client(bundle=default_bundle_path()) as opened:
        yield opened


def bands(sound: Audio) -> npt.NDArray[np.float64]:
    """Levels [frames, bands] in dB, of third octaves from 200 Hz to 8 kHz, every 10 ms."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, 2048)[::STEP] * np.hanning(2048)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = (200 * 2 ** (np.arange(17) / 3) * 2048 / RATE).astype(int)
    return np.stack(
        [10 * np.log10(power[:, low:high].mean(axis=1) + 1e-7) for low, high in pairwise(edges)],
        axis=1,
    )


def level(sound: Audio, seconds: float = 0.05) -> npt.NDArray[np.float64]:
    n = round(seconds * RATE)
    pieces = sound[: len(sound) // n * n].reshape(-1, n)
    return 10 * np.log10(np.square(pieces, dtype=np.float64).mean(axis=1) + 1e-12)


@pytest.mark.parametrize("here, there", PAIRS)
def test_a_jump_is_made_within_a_seventh_of_a_second(client: timbrel.Client, here: str, there: str) -> None:
    """80 % of the way in third octaves, within 150 ms and half the window that they are measured by."""
    path = [(0.0, here), (1.5, here), (1.5, there)]
    one, other, moved = (
        client.generate(way, PITCH, seconds=2.5, seed=1).audio for way in (here, there, path)
    )
    first, last, found = (bands(sound[: 5 * RATE // 2]) for sound in (one, other, moved))
    away = (last - first)[180:240].mean(axis=0)
    done = ((found - first[: len(found)]) @ away) / (away @ away)
    reached = np.flatnonzero(done[150:] > 0.8)[0] / 100
    assert reached <= 0.15 + 1024 / RATE
    assert np.median(done[100:145]) < 0.1 and np.median(done[190:240]) > 0.9


@pytest.mark.parametrize("here, there", PAIRS)
def test_a_path_is_gone_in_tune_and_without_a_gap(client: timbrel.Client, here: str, there: str) -> None:
    path = [(0.3, here), (1.8, there)]
    one, other, moved = (
        client.generate(way, PITCH, seconds=2.0, seed=2).audio for way in (here, there, path)
    )
    least = np.minimum(*(level(sound[: 2 * RATE]) for sound in (one, other)))
    assert (level(moved[: 2 * RATE])[4:39] > least[4:39] - 6).all()
    for begin in (0.3, 0.8, 1.3):
        pitch = Yin().measure(
            np.ascontiguousarray(moved[round(begin * RATE) : round((begin + 0.4) * RATE)]), RATE
        )
        assert pitch is not None and abs(pitch - PITCH) < 0.2
