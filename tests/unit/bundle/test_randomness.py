"""Uniforms are functions of (seed, step, codebook): the same for ever, and spread evenly."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel_bundle.randomness import MAX_SEED, uniforms_batch


def _splitmix(z: int) -> int:
    """splitmix64's finaliser in plain integers."""
    mask = 2**64 - 1
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def _expected(seed: int, step: int, codebook: int) -> float:
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    state = _splitmix((seed + golden) & mask)
    state = _splitmix(((state ^ step) + golden) & mask)
    state = _splitmix(((state ^ codebook) + golden) & mask)
    return ((state >> 41) + 0.5) / 2**23


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (1, 0), (0, 1), (123456789, 700), (MAX_SEED, MAX_SEED)])
def test_they_never_change(seed: int, step: int) -> None:
    (values,) = uniforms_batch([seed], [step], 8)
    assert values.dtype == np.float32
    assert values.tolist() == [_expected(seed, step, codebook) for codebook in range(8)]


def test_a_row_is_the_same_in_any_batch() -> None:
    seeds, steps = [7, 2**63, 0, 7], [3, 0, 900, 4]
    batch = uniforms_batch(seeds, steps, 5)
    for row, seed, step in zip(batch, seeds, steps, strict=True):
        np.testing.assert_array_equal(row, uniforms_batch([seed], [step], 5)[0])


def test_they_lie_inside_and_are_spread_evenly() -> None:
    values = uniforms_batch(np.arange(500, dtype=np.uint64), np.zeros(500, np.uint64), 200).ravel()
    assert values.min() > 0.0 and values.max() < 1.0
    counts, _ = np.histogram(values, bins=50, range=(0, 1))
    assert np.sum((counts - 2000) ** 2 / 2000) < 100  # chi-square, 49 degrees of freedom


def test_neighbouring_seeds_steps_and_codebooks_are_unrelated() -> None:
    base = uniforms_batch([1] * 2000, np.arange(2000, dtype=np.uint64), 3)
    other_seed = uniforms_batch([2] * 2000, np.arange(2000, dtype=np.uint64), 3)
    pairs = [(base[:, 0], base[:, 1]), (base[:-1, 0], base[1:, 0]), (base[:, 0], other_seed[:, 0])]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.1


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(OverflowError):
        uniforms_batch([seed], [0], 4)
