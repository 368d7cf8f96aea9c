from __future__ import annotations

import numpy as np
import pytest

from timbrel.performance.faders import RAMP_SECONDS, Faders, side_gains
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
