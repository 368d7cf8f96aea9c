"""Weights of 8 bits are exact where they can be, and close elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.weights import (
    BLOCK_SIZE,
    CODES_SUFFIX,
    SCALES_SUFFIX,
    block_shape,
    derive,
    quantize,
    source_of,
)


def restored(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    codes, scales = quantize(weight)
    blocks = scales[:, :, None] * (codes.astype(np.float32) - 128)
    return blocks.reshape(len(weight), -1)[:, : weight.shape[1]]


def test_no_number_is_off_by_more_than_half_a_step_of_its_block() -> None:
    weight = np.random.default_rng(0).standard_normal((5, 3 * BLOCK_SIZE)).astype(np.float32)
    steps = np.abs(weight.reshape(5, 3, BLOCK_SIZE)).max(axis=2) / 127
    error = np.abs(restored(weight) - weight).reshape(5, 3, BLOCK_SIZE).max(axis=2)
    assert (error <= 0.5001 * steps).all()
    assert error.max() > 0


def test_multiples_of_the_step_are_exact() -> None:
    weight = np.tile(np.arange(-127, 128, dtype=np.float32), 2)[None, : 4 * BLOCK_SIZE]
    weight[0, ::BLOCK_SIZE] = 127
    np.testing.assert_array_equal(restored(weight), weight)


def test_zeros_and_a_width_that_fills_no_whole_block() -> None:
    weight = np.zeros((2, BLOCK_SIZE + 3), dtype=np.float32)
    weight[1, -1] = -2.0
    codes, scales = quantize(weight)
    assert codes.shape == block_shape(weight.shape) == (2, 2, BLOCK_SIZE)
    assert scales.shape == (2, 2)
    np.testing.assert_allclose(restored(weight), weight, atol=1e-6)


def test_derived_weights_are_told_by_their_names() -> None:
    weight = np.eye(BLOCK_SIZE, dtype=np.float32)
    assert source_of(f"a.weight{CODES_SUFFIX}") == source_of(f"a.weight{SCALES_SUFFIX}") == "a.weight"
    assert source_of("a.weight") == "a.weight"
    assert derive(f"a.weight{CODES_SUFFIX}", weight).dtype == np.uint8
    assert derive(f"a.weight{SCALES_SUFFIX}", weight).dtype == np.float32
