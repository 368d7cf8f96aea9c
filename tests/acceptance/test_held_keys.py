"""Keys of the bundle that ships, held for a minute: what is sustained stays as it is, what dies dies away."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import timbrel
from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

Audio = npt.NDArray[np.float32]

SUSTAINED = ("Violin", "Flute", "Trumpet", "Clarinet", "Reed Organ")
DYING = ("Acoustic Grand Piano", "Acoustic Guitar (nylon)", "Vibraphone")
PITCH, SECONDS = 64, 60.0
LEAST_VARIATION_DB = 1.0
"""Below this no two seconds of a steady sound are told apart."""
RELEASE_SECONDS = 0.05
WINDOW = 2048


@pytest.fixture(scope="module")
def client() -> Iterator[timbrel.Client]:
    with timbrel.Client(bundle=default_bundle_path()) as client:
        assert client.model().holds_on
        yield client


def spectrum(audio: Audio, rate: int, second: float) -> npt.NDArray[np.float64]:
    """dB in third octaves, the mean over a second."""
    part = audio[round(second * rate) : round((second + 1) * rate)]
    frames = np.lib.stride_tricks.sliding_window_view(part, WINDOW)[:: WINDOW // 4] * np.hanning(WINDOW)
    power = (np.abs(np.fft.rfft(frames)) ** 2).mean(axis=0)
    octave = np.log2(np.maximum(np.fft.rfftfreq(WINDOW, 1 / rate), 1.0) / 60.0)
    bands = [power[(octave >= low) & (octave < low + 1 / 3)].sum() for low in np.arange(1.0, 8.0, 1 / 3)]
    return 10 * np.log10(np.array(bands) + 1e-12)


def distance(audio: Audio, rate: int, first: float, second: float) -> float:
    """Mean absolute difference in dB, both clipped 60 dB below the louder one's peak."""
    one, other = spectrum(audio, rate, first), spectrum(audio, rate, second)
    floor = max(one.max(), other.max()) - 60.0
    return float(np.abs(np.maximum(one, floor) - np.maximum(other, floor)).mean())


def level_db(audio: Audio, rate: int, second: float) -> float:
    part = audio[round(second * rate) : round((second + 0.5) * rate)]
    return float(10 * np.log10(np.square(part, dtype=np.float64).mean() + 1e-12))


@pytest.mark.parametrize("instrument", SUSTAINED)
def test_what_is_sustained_is_after_a_minute_what_it_was(client: timbrel.Client, instrument: str) -> None:
    note = client.generate(instrument, PITCH, seconds=SECONDS, seed=1)
    audio, rate = note.audio, note.sample_rate
    assert len(audio) >= SECONDS * rate
    own = max(distance(audio, rate, first, first + 1) for first in (1.0, 1.5, 2.0))
    assert distance(audio, rate, 3.0, 58.9) <= max(1.5 * own, LEAST_VARIATION_DB)
    steps = np.abs(np.diff(audio))
    held_on = round(2.5 * rate), round(4.5 * rate)  # where the model's part ends lies in between
    assert steps[slice(*held_on)].max() <= 1.5 * steps[rate : held_on[0]].max(), "a click"
    before, after = (level_db(audio, rate, SECONDS + at) for at in (-0.6, RELEASE_SECONDS))
    assert after < before - 3.0


@pytest.mark.parametrize("instrument", DYING)
def test_what_dies_away_dies_away(client: timbrel.Client, instrument: str) -> None:
    note = client.generate(instrument, PITCH, seconds=20.0, seed=1)
    audio, rate = note.audio, note.sample_rate
    audio = np.pad(audio, (0, max(0, 21 * rate - len(audio))))
    levels = [level_db(audio, rate, second) for second in (0.1, 3.0, 6.0, 12.0, 19.0)]
    assert levels[-1] < levels[0] - 30.0
    assert max(np.diff(levels)) < 1.0


def test_a_player_holds_a_key_for_a_minute(client: timbrel.Client) -> None:
    with client.play() as player:
        held = player.note_on("Flute", PITCH, seed=1)
        threading.Timer(SECONDS, held.off).start()
        audio = np.concatenate(list(held))
    assert held.held_seconds is not None and held.held_seconds == pytest.approx(SECONDS, abs=1.0)
    assert len(audio) >= held.held_seconds * client.model().sample_rate
