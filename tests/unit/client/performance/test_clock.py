from __future__ import annotations

import pytest

from timbrel.performance.clock import TempoClock, clock_of


def test_without_a_tempo_a_quarter_note_lasts_half_a_second() -> None:
    assert clock_of(480, []).seconds(960) == pytest.approx(1.0)


def test_tempos_count_from_their_tick_on() -> None:
    clock = TempoClock(100, [(200, 1_000_000), (300, 250_000)])
    assert [clock.seconds(tick) for tick in (100, 200, 250, 300, 400)] == pytest.approx(
        [0.5, 1.0, 1.5, 2.0, 2.25]
    )


def test_of_two_tempos_at_a_tick_the_last_counts() -> None:
    assert TempoClock(100, [(0, 250_000), (0, 1_000_000)]).seconds(100) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("frames", "ticks", "seconds"), [(25, 40, 0.001), (30, 80, 1 / 2400), (29, 100, 1.001 / 3000)]
)
def test_smpte_ticks_are_parts_of_a_frame_and_tempos_mean_nothing(
    frames: int, ticks: int, seconds: float
) -> None:
    division = (-frames << 8) | ticks
    assert clock_of(division, [(0, 1)]).seconds(1) == pytest.approx(seconds)


@pytest.mark.parametrize("division", [0, -25 << 8])
def test_time_divided_by_nothing_is_refused(division: int) -> None:
    with pytest.raises(ValueError, match="0 ticks"):
        clock_of(division, [])
