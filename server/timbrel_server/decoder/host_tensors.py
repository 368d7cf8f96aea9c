"""What the host writes before each run of a graph, and what it reads after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_server.decoder.memory import HOST, Memory


class HostInput:
    """A graph's input [n_rows, ...] that the host writes before each run, through `array`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: type[np.generic], memory: Memory) -> None:
        self._name = name
        self._memory = memory
        # By number of rows; where the device has memory of its own.
        self._copies: dict[int, Any] = {}
        self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        rows = self.array[:n_rows]
        if self._memory == HOST:
            binding.bind_input(self._name, *HOST, self.array.dtype, rows.shape, self.array.ctypes.data)
            return
        if n_rows not in self._copies:
            self._copies[n_rows] = self._memory.copy_of(rows)
        binding.bind_ortvalue_input(self._name, self._copies[n_rows])

    def upload(self, n_rows: int) -> None:
        """Makes what the host wrote to the first rows visible to the device."""
        if n_rows in self._copies:
            self._copies[n_rows].update_inplace(self.array[:n_rows])


class HostOutput:
    """A graph's output [n_rows, ...] that the host reads after each run, through `array`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: type[np.generic], memory: Memory) -> None:
        self._name = name
        self._memory = memory
        self._copies: dict[int, Any] = {}  # as an input's
        self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        rows = self.array[:n_rows]
        if self._memory == HOST:
            binding.bind_output(self._name, *HOST, self.array.dtype, rows.shape, self.array.ctypes.data)
            return
        if n_rows not in self._copies:
            self._copies[n_rows] = self._memory.copy_of(rows)
        binding.bind_ortvalue_output(self._name, self._copies[n_rows])

    def download(self, n_rows: int) -> None:
        """Makes what the device wrote to the first rows visible to the host."""
        if n_rows in self._copies:
            self.array[:n_rows] = self._copies[n_rows].numpy()
