"""Weights in 8 bits, derived from those that ship, in the layout of onnxruntime's MatMulNBits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

N_BITS = 8
BLOCK_SIZE = 64
"""Inputs that share a scale. Smaller blocks are more exact, larger ones faster."""

CODES_SUFFIX = "_int8"
"""Behind a weight's name: its codes, uint8 [n_out, n_blocks, BLOCK_SIZE]."""

SCALES_SUFFIX = "_scales"
"""Behind a weight's name: its scales, float32 [n_out, n_blocks]."""

_LARGEST = 127
_ZERO = 128
"""The code of the number 0."""


def block_shape(weight_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Shape of the codes of a weight [n_out, n_in]."""
    n_out, n_in = weight_shape
    return n_out, -(-n_in // BLOCK_SIZE), BLOCK_SIZE


def quantize(weight: npt.NDArray[np.floating]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Codes [n_out, n_blocks, BLOCK_SIZE] and scales [n_out, n_blocks] of a weight [n_out, n_in].

    Symmetric: a block's largest number gets the code 255 or 1, and weight = scale * (code - 128).
    """
    n_out, n_blocks, _ = shape = block_shape(weight.shape)
    padded = np.zeros((n_out, n_blocks * BLOCK_SIZE), dtype=np.float32)
    padded[:, : weight.shape[1]] = weight
    blocks = padded.reshape(shape)
    scales = np.abs(blocks).max(axis=2) / _LARGEST
    divisors = np.where(scales > 0, scales, 1.0)[:, :, None]
    codes = np.rint(blocks / divisors).astype(np.int16) + _ZERO
    return codes.astype(np.uint8), scales.astype(np.float32)


def derive(name: str, weight: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32]:
    """The derived weight of this name, of the weight that it is made from."""
    codes, scales = quantize(weight)
    return codes if name.endswith(CODES_SUFFIX) else scales


def source_of(name: str) -> str:
    """The weight that a derived one is made from; the name itself, where it is none of ours."""
    for suffix in (CODES_SUFFIX, SCALES_SUFFIX):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
