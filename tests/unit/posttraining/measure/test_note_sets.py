"""Measures of many notes together: Frechet distance, smoothness of paths."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel_posttraining.evaluate.measure.note_sets import (
    N_STATISTICS,
    frechet_distance,
    frechet_floor,
    largest_step_share,
    log_mel_statistics,
    path_of_log_mels,
)
from timbrel_training.errors import TrainingError
from timbrel_training.notes.spectrum import log_mel_distance


def test_frechet_distance_of_known_gaussians() -> None:
    rng = np.random.default_rng(0)
    a = 10 * rng.standard_normal((20_000, 4))
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(a, a + 3) == pytest.approx(4 * 9, rel=1e-6)
    # Deviations 10 and 20 differ by 10 in each of four dimensions, and the regularisation hardly counts.
    assert frechet_distance(a, 2 * a) == pytest.approx(400, rel=0.02)
    turned = a * np.array([1, 1, 3, 3])
    assert frechet_distance(turned, turned[:, ::-1]) == pytest.approx(4 * 400, rel=0.02)


def test_a_distance_within_the_floor_is_no_difference() -> None:
    rng = np.random.default_rng(1)
    notes = 5 * rng.standard_normal((300, N_STATISTICS))
    floor = frechet_floor(notes)
    assert floor == frechet_floor(notes)
    assert frechet_distance(notes, 5 * rng.standard_normal((300, N_STATISTICS))) < floor
    assert frechet_distance(notes, 5 * rng.standard_normal((300, N_STATISTICS)) + 5) > 3 * floor


def test_fewer_notes_than_dimensions_still_give_a_distance() -> None:
    notes = np.random.default_rng(2).standard_normal((6, N_STATISTICS))
    assert np.isfinite(frechet_distance(notes, notes[:3]))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: frechet_distance(np.zeros((1, 3)), np.zeros((5, 3))), "n at least 2"),
        (lambda: frechet_distance(np.zeros((5, 3)), np.zeros((5, 4))), "3 and of 4"),
        (lambda: frechet_floor(np.zeros((3, 3))), "at least 4"),
        (lambda: largest_step_share([[1.0]]), "at least 2"),
        (lambda: path_of_log_mels([[np.zeros((2, 80))], []]), "same number"),
    ],
)
def test_bad_input_is_one_clear_line(call, match) -> None:
    with pytest.raises(TrainingError, match=match):
        call()


def test_statistics_are_those_of_the_bands() -> None:
    mel = np.repeat(np.array([[-30.0], [-40.0]]), 80, axis=1)
    assert log_mel_statistics(mel) == pytest.approx(np.repeat([-35.0, 5.0], N_STATISTICS // 2))
    assert log_mel_statistics(mel[:0]).shape == (N_STATISTICS,)


def test_even_paths_and_sudden_ones() -> None:
    even = np.linspace(0, 1, 9)[:, None] * np.ones(5)
    assert largest_step_share(even) == pytest.approx(1 / 8)
    sudden = np.repeat([0.0, 1.0], [4, 5])[:, None] * np.ones(5)
    assert largest_step_share(sudden) == 1
    assert largest_step_share([[0.0], [1.0], [0.0]]) == pytest.approx(0.5)
    assert largest_step_share([[0.0], [1.0], [5.0]]) == pytest.approx(0.8)
    assert np.isnan(largest_step_share(np.ones((9, 5))))


def test_path_of_log_mels_averages_seeds_and_pads() -> None:
    mels = [[np.full((frames, 80), level, np.float32) for frames in (3, 4)] for level in (-20.0, -26.0)]
    path = path_of_log_mels(mels)
    assert path.shape == (2, 4, 80)
    assert np.abs(path[0] - path[1])[:3] == pytest.approx(6)
    assert np.abs(path[0] - path[1])[3] == pytest.approx(3)
    single = path_of_log_mels([[mels[0][1]], [mels[1][0]]])
    assert np.abs(single[0] - single[1]).mean() == pytest.approx(log_mel_distance(mels[0][1], mels[1][0]))
