from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timbrel.performance.drums import at_volume
from timbrel.performance.mix import RAMP_SECONDS, Faders, StereoMix, level, side_gains
from timbrel.performance.score import ChannelState

RATE = 48_000


def test_in_the_middle_at_the_default_volume_the_level_stays() -> None:
    assert side_gains(ChannelState(0.0)) == pytest.approx((1.0, 1.0))


def test_volume_and_expression_follow_general_midi() -> None:
    left, _ = side_gains(ChannelState(0.0, volume=50))
    assert 20 * np.log10(left) == pytest.approx(40 * np.log10(0.5))
    left, _ = side_gains(ChannelState(0.0, expression=64))
    assert 20 * np.log10(left) == pytest.approx(40 * np.log10(64 / 127))
    assert side_gains(ChannelState(0.0, volume=0)) == (0.0, 0.0)


def test_pan_keeps_the_power_and_goes_all_the_way() -> None:
    for pan in range(128):
        left, right = side_gains(ChannelState(0.0, pan=pan))
        assert left**2 + right**2 == pytest.approx(2.0)
    assert side_gains(ChannelState(0.0, pan=0))[1] == pytest.approx(0.0)
    assert side_gains(ChannelState(0.0, pan=127))[0] == pytest.approx(0.0, abs=1e-12)


def test_a_controllers_step_is_a_ramp() -> None:
    faders = Faders([ChannelState(0.0), ChannelState(1.0, volume=50)], RATE)
    assert faders.gains(0, 1000).shape == (2, 1)
    across = faders.gains(RATE - 1000, 3000)[0]
    assert across.shape == (3000,)
    assert across[0] == pytest.approx(1.0) and across[-1] == pytest.approx(0.25)
    assert np.abs(np.diff(across)).max() <= 0.76 / (RAMP_SECONDS * RATE)
    assert faders.gains(2 * RATE, 10)[0, 0] == pytest.approx(0.25)


def test_a_note_at_a_controllers_step_begins_at_the_new_level() -> None:
    faders = Faders([ChannelState(0.0, expression=0), ChannelState(1.0, expression=127)], RATE)
    assert faders.gains(RATE, 100) == pytest.approx(1.0)
    assert faders.gains(RATE - round(RAMP_SECONDS * RATE) - 100, 100) == pytest.approx(0.0)


def test_a_fade_of_many_steps_has_none() -> None:
    states = [ChannelState(index * 0.002, volume=100 - index) for index in range(50)]
    gains = Faders(states, RATE).gains(0, RATE)[0]
    assert np.all(np.diff(gains) <= 0.0) and np.abs(np.diff(gains)).max() < 1e-3


def test_a_stretch_is_read_off_the_points_around_it_and_is_as_read_off_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Some steps are nearer to one another than a ramp is long, so that points lie on one place.
    states = [ChannelState(index * 0.004, expression=64 + index * 7 % 60) for index in range(1, 2000)]
    faders = Faders([ChannelState(0.0), *states], RATE)
    whole = faders.gains(0, 9 * RATE)
    n_points: list[int] = []
    interpolated = np.interp

    def counting(at: Any, places: Any, values: Any) -> Any:
        n_points.append(len(places))
        return interpolated(at, places, values)

    monkeypatch.setattr(np, "interp", counting)
    for start in (0, 1, 191, 192, 193, 1000, 4 * RATE, 8 * RATE - 200, 8 * RATE):
        for n_samples in (0, 1, 192, 1000):
            gains = faders.gains(start, n_samples)
            expected = whole[:, start : start + n_samples]
            assert np.array_equal(np.broadcast_to(gains, (2, n_samples)), expected), (start, n_samples)
    assert max(n_points) < 40


def test_a_step_of_the_drums_volume_is_a_ramp_before_it() -> None:
    steps = ((-np.inf, 0.0), (0.5, -12.0), (0.502, -6.0), (2.0, -20.0))
    sound = at_volume(np.ones((RATE, 2), np.float32), steps, RATE)[:, 0]
    assert np.all(sound[: round((0.5 - RAMP_SECONDS) * RATE)] == 1.0)
    assert sound[round(0.5 * RATE)] == pytest.approx(10 ** (-12 / 20), abs=0.01)
    assert np.all(sound[round(0.502 * RATE) :] == np.float32(10 ** (-6 / 20)))
    assert np.abs(np.diff(sound)).max() < 0.01
    assert len(at_volume(np.zeros((0, 2), np.float32), steps, RATE)) == 0


MIX_RATE = 1000


def test_notes_add_up_where_they_belong_and_the_end_is_the_last_ones() -> None:
    mix = StereoMix(MIX_RATE, 0.01)
    middle, left = Faders([ChannelState(0.0)], MIX_RATE), Faders([ChannelState(0.0, pan=0)], MIX_RATE)
    mix.add(np.full(50, 0.5, np.float32), 100, middle)
    mix.add(np.full(50, 0.25, np.float32), 120, left)
    audio = mix.audio()
    assert audio.shape == (170, 2)
    assert audio[110] == pytest.approx([0.5, 0.5])
    assert audio[130] == pytest.approx([0.5 + 0.25 * 2**0.5, 0.5])
    assert audio[160] == pytest.approx([0.25 * 2**0.5, 0.0])


def test_what_lies_before_the_beginning_is_cut_without_a_click() -> None:
    mix = StereoMix(MIX_RATE, 1.0)
    mix.add(np.ones(100, np.float32), -20, Faders([ChannelState(0.0)], MIX_RATE))
    audio = mix.audio()[:, 0]
    assert len(audio) == 80
    assert audio[0] == 0.0 and audio[10] == 1.0


def test_nothing_is_done_to_a_piece_that_does_not_clip() -> None:
    audio = np.array([[0.9, -0.5]], np.float32)
    assert level(audio, normalize=False) == (pytest.approx(20 * np.log10(0.9)), 0.0)
    assert np.array_equal(audio, np.array([[0.9, -0.5]], np.float32))


@pytest.mark.parametrize(("peak", "normalize"), [(2.0, False), (0.1, True)])
def test_a_piece_that_would_clip_or_is_to_be_normalised_peaks_at_minus_1_db(
    peak: float, normalize: bool
) -> None:
    audio = np.array([[peak, 0.0]], np.float32)
    _, gain_db = level(audio, normalize)
    assert 20 * np.log10(np.abs(audio).max()) == pytest.approx(-1.0, abs=1e-4)
    assert gain_db == pytest.approx(-1.0 - 20 * np.log10(peak), abs=1e-6)


def test_silence_stays_silence() -> None:
    assert level(np.zeros((10, 2), np.float32), normalize=True)[1] == 0.0
