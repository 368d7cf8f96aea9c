"""The weights of a bundle: from fp16, as they ship, to what a graph computes in (fp32, fp16 or 8 bits).

8-bit weights are derived from those that ship, in the layout of onnxruntime's MatMulNBits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from timbrel_bundle.errors import BundleError
from timbrel_bundle.graph_header import ExternalWeight
from timbrel_bundle.runtime import load_runtime

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


def load_weights(path: Path, weights: Sequence[ExternalWeight]) -> list[np.ndarray[Any, Any]]:
    """Reads the named weights from a .safetensors file, each in the type that the graph declares.

    fp16 values are exact in fp32, so nothing is lost on the way. What the file does not hold is derived where
    its name says how (see `derive`).

    Raises:
        BundleError: the file is damaged, lacks a weight or holds it in another shape, or one is not finite.
    """
    with _open(path) as file:
        present = set(file.keys())
        return [_load_weight(path, file, present, weight) for weight in weights]


def check_weights(path: Path) -> None:
    """Raises BundleError where a .safetensors file is damaged, or holds a number that is not finite."""
    with _open(path) as file:
        present = set(file.keys())
        for name in present:
            _read(path, file, present, name)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError:
        raise BundleError(path, "the file is missing") from None
    except (SafetensorError, OSError) as error:
        raise BundleError(path, f"is not a whole safetensors file ({error})") from None


def _load_weight(path: Path, file: Any, present: set[str], weight: ExternalWeight) -> np.ndarray[Any, Any]:
    source = source_of(weight.name)
    if weight.name in present or source not in present:
        values = _read(path, file, present, weight.name)
    else:
        values = _read(path, file, present, source)
        if values.ndim != 2:
            raise BundleError(
                path, f"has the weight {source!r} as {list(values.shape)}, 8 bits need a matrix"
            )
        values = derive(weight.name, values)
    if values.shape != weight.shape:
        raise BundleError(
            path,
            f"has the weight {weight.name!r} as {list(values.shape)}, the graph wants {list(weight.shape)}",
        )
    return np.asarray(values, dtype=np.dtype(weight.dtype), order="C")


def _read(path: Path, file: Any, present: set[str], name: str) -> np.ndarray[Any, Any]:
    if name not in present:
        raise BundleError(path, f"lacks the weight {name!r}")
    try:
        values: np.ndarray[Any, Any] = file.get_tensor(name)
    except (AttributeError, TypeError):  # types that numpy has not
        raise BundleError(path, f"has the weight {name!r} in a type that numpy does not know") from None
    if values.dtype.kind not in "fiu":
        raise BundleError(path, f"has the weight {name!r} as {values.dtype}")
    if not np.isfinite(values).all():
        raise BundleError(path, f"has a number in the weight {name!r} that is not finite")
    return values


def to_ort_values(arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """OrtValues in CPU memory, for SessionOptions.add_external_initializers."""
    ort_value = load_runtime().OrtValue
    return [ort_value.ortvalue_from_numpy(array) for array in arrays]


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
