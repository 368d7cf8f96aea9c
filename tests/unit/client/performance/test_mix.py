from __future__ import annotations

import numpy as np
import pytest

from timbrel.performance.faders import Faders
from timbrel.performance.level import levelled
from timbrel.performance.mix import StereoMix
from timbrel.performance.score import ChannelState

RATE = 1000


def test_notes_add_up_where_they_belong_and_the_end_is_the_last_ones() -> None:
    mix = StereoMix(RATE, 0.01)
    middle, left = Faders([ChannelState(0.0)], RATE), Faders([ChannelState(0.0, pan=0)], RATE)
    mix.add(np.full(50, 0.5, np.float32), 100, middle)
    mix.add(np.full(50, 0.25, np.float32), 120, left)
    audio = mix.audio()
    assert audio.shape == (170, 2)
    assert audio[110] == pytest.approx([0.5, 0.5])
    assert audio[130] == pytest.approx([0.5 + 0.25 * 2**0.5, 0.5])
    assert audio[160] == pytest.approx([0.25 * 2**0.5, 0.0])


def test_what_lies_before_the_beginning_is_cut_without_a_click() -> None:
    mix = StereoMix(RATE, 1.0)
    mix.add(np.ones(100, np.float32), -20, Faders([ChannelState(0.0)], RATE))
    audio = mix.audio()[:, 0]
    assert len(audio) == 80
    assert audio[0] == 0.0 and audio[10] == 1.0


def test_nothing_is_done_to_a_piece_that_does_not_clip() -> None:
    audio = np.array([[0.9, -0.5]], np.float32)
    result = levelled(audio, normalize=False)
    assert result.audio is audio
    assert (result.gain_db, result.peak_db) == (0.0, pytest.approx(20 * np.log10(0.9)))


@pytest.mark.parametrize(("peak", "normalize"), [(2.0, False), (0.1, True)])
def test_a_piece_that_would_clip_or_is_to_be_normalised_peaks_at_minus_1_db(
    peak: float, normalize: bool
) -> None:
    result = levelled(np.array([[peak, 0.0]], np.float32), normalize)
    assert 20 * np.log10(np.abs(result.audio).max()) == pytest.approx(-1.0, abs=1e-4)
    assert result.gain_db == pytest.approx(-1.0 - 20 * np.log10(peak), abs=1e-6)


def test_silence_stays_silence() -> None:
    assert levelled(np.zeros((10, 2), np.float32), normalize=True).gain_db == 0.0
