"""The ticks of real time."""

from __future__ import annotations

import pytest

from timbrel_server.engine.metronome import Metronome


@pytest.mark.parametrize(
    ("now", "tick"), [(0.0, 0), (0.019, 0), (0.021, 1), (1.0, 50), (1e6 + 0.01, 50_000_000)]
)
def test_a_tick_is_a_frame_of_real_time(now: float, tick: int) -> None:
    assert Metronome(50.0, lambda: now).tick == tick


@pytest.mark.parametrize("now", [0.0, 0.005, 0.0199999, 123.456, 1e6])
def test_sleeping_until_the_next_tick_reaches_it_and_no_further(now: float) -> None:
    metronome = Metronome(50.0, lambda: now)
    later = Metronome(50.0, lambda: now + metronome.seconds_to_next + 1e-6)
    assert 0 < metronome.seconds_to_next <= 0.02 + 1e-9
    assert later.tick == metronome.tick + 1
