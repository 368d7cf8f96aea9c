"""Weights as they ship (fp16, PyTorch names) to weights as a graph wants them (fp32, fp16, 8 bits)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from timbrel_bundle.errors import BundleError
from timbrel_bundle.graph_header import ExternalWeight
from timbrel_bundle.quantization import derive, source_of
from timbrel_bundle.runtime import load_runtime


def load_weights(path: Path, weights: Sequence[ExternalWeight]) -> list[np.ndarray[Any, Any]]:
    """Reads the named weights from a .safetensors file, each in the type that the graph declares.

    fp16 values are exact in fp32, so nothing is lost on the way. What the file does not hold is derived where
    its name says how (see `quantization`).

    Raises:
        BundleError: the file is damaged, lacks a weight or holds it in another shape.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            present = set(file.keys())
            return [_load_weight(path, file, present, weight) for weight in weights]
    except FileNotFoundError:
        raise BundleError(path, "the file is missing") from None
    except (SafetensorError, OSError) as error:
        raise BundleError(path, f"is not a whole safetensors file ({error})") from None


def _load_weight(path: Path, file: Any, present: set[str], weight: ExternalWeight) -> np.ndarray[Any, Any]:
    source = source_of(weight.name)
    if weight.name in present or source not in present:
        values = _read(path, file, present, weight.name)
    else:
        values = derive(weight.name, _read(path, file, present, source))
    if values.shape != weight.shape:
        raise BundleError(
            path,
            f"has the weight {weight.name!r} as {list(values.shape)}, the graph wants {list(weight.shape)}",
        )
    return np.asarray(values, dtype=np.dtype(weight.dtype), order="C")


def _read(path: Path, file: Any, present: set[str], name: str) -> np.ndarray[Any, Any]:
    if name not in present:
        raise BundleError(path, f"lacks the weight {name!r}")
    values: np.ndarray[Any, Any] = file.get_tensor(name)
    return values


def to_ort_values(arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """OrtValues in CPU memory, for SessionOptions.add_external_initializers."""
    ort_value = load_runtime().OrtValue
    return [ort_value.ortvalue_from_numpy(array) for array in arrays]
