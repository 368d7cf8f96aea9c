"""What two readings of a note's pitch lead to."""

from __future__ import annotations

import pytest

from timbrel.library.tuning import Verdict, correction_cents, is_in_tune, judge


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
