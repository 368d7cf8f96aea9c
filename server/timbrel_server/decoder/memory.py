"""The memory that a graph works in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from timbrel_bundle.runtime import load_runtime


class Memory(NamedTuple):
    """Named as onnxruntime's bindings want it."""

    device: str
    """"cpu" or "cuda"."""

    device_id: int
    """Of several devices of a kind, from 0."""

    def copy_of(self, array: npt.NDArray[np.generic]) -> Any:
        """An OrtValue there with the array's values; on the host it is the array's own memory."""
        return load_runtime().OrtValue.ortvalue_from_numpy(array, *self)


HOST = Memory("cpu", 0)
"""The CPU's."""
