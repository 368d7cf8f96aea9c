"""What two readings of a note's pitch lead to."""

from __future__ import annotations

import pytest

from timbrel.library.tuning import Verdict, correction_cents, is_in_tune, judge, one_settles


@pytest.mark.parametrize(
    ("one", "other", "verdict", "correction"),
    [
        (60.0, 60.0, Verdict.KEEP, 0),
        (60.04, 60.04, Verdict.KEEP, 0),
        (60.12, 60.10, Verdict.TUNE, -10),
        (59.80, 59.70, Verdict.TUNE, 20),
        (60.50, 60.49, Verdict.TUNE, -49),
        (60.12, 60.02, Verdict.KEEP, 0),  # one of them hears nothing amiss
        (60.12, 59.88, Verdict.KEEP, 0),  # they contradict each other
        (60.12, 72.12, Verdict.KEEP, 0),  # one tracker's octave error
        (60.00, 48.00, Verdict.KEEP, 0),
        (60.10, 61.00, Verdict.KEEP, 0),
        (72.00, 72.00, Verdict.AGAIN, 0),
        (61.00, 48.00, Verdict.AGAIN, 0),
        (60.51, 60.52, Verdict.AGAIN, 0),
        (None, 72.0, Verdict.KEEP, 0),
        (72.0, None, Verdict.KEEP, 0),
        (None, None, Verdict.KEEP, 0),
    ],
)
def test_both_trackers_have_to_agree(
    one: float | None, other: float | None, verdict: Verdict, correction: int
) -> None:
    for pair in ((one, other), (other, one)):
        assert judge(60, *pair) is verdict
        assert correction_cents(60, *pair) == correction


def test_in_tune_is_within_half_a_semitone_by_either() -> None:
    assert is_in_tune(60, 60.4, 72.0)
    assert is_in_tune(60, None, 59.6)
    assert not is_in_tune(60, 72.0, 60.6)
    assert not is_in_tune(60, None, None)
    assert is_in_tune(60, 60.6, None, tune=-20)


@pytest.mark.parametrize("one", [59.96, 60.0, 60.049])
@pytest.mark.parametrize("other", [None, 36.0, 59.4, 59.8, 60.0, 60.1, 60.6, 72.0])
def test_a_first_reading_that_settles_it_leaves_nothing_to_a_second(one: float, other: float | None) -> None:
    assert one_settles(60, one)
    assert judge(60, one, other) is judge(60, one, None) is Verdict.KEEP
    assert correction_cents(60, one, other) == correction_cents(60, one, None) == 0
    assert is_in_tune(60, one, other) and is_in_tune(60, one, None)


@pytest.mark.parametrize("one", [None, 59.94, 60.06, 60.6, 72.0])
def test_any_other_first_reading_calls_for_a_second(one: float | None) -> None:
    assert not one_settles(60, one)
