"""Memory at a fixed address, so that it can be bound to a graph's inputs and outputs once and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.runtime import load_runtime


class Arena:
    """float32 or float16 [n_rows, *row_shape], one row per slot.

    A run at a smaller batch binds the first rows alone. It starts as zeros: rows and positions that are not
    in use take part in the arithmetic with weight zero, so they may hold any number but not NaN.
    """

    def __init__(
        self, n_rows: int, row_shape: tuple[int, ...], memory: str, dtype: type[np.floating] = np.float32
    ) -> None:
        """
        Args:
            memory: onnxruntime's name of it, "cpu" or "cuda".
        """
        self._memory = memory
        self._row_shape = row_shape
        self._dtype = dtype
        self._array = np.zeros((n_rows, *row_shape), dtype=dtype)  # the memory itself, on the CPU
        self._value: Any = load_runtime().OrtValue.ortvalue_from_numpy(self._array, memory, 0)
        self._base: int = self._value.data_ptr()

    def bind_input(self, binding: Any, name: str, n_rows: int) -> None:
        """Binds the first rows to a graph's input."""
        shape = (n_rows, *self._row_shape)
        binding.bind_input(name, self._memory, 0, self._dtype, shape, self._base)

    def bind_output(self, binding: Any, name: str, n_rows: int, first_row: int = 0) -> None:
        """Binds rows from `first_row` on to a graph's output."""
        shape = (n_rows, *self._row_shape)
        address = self._base + first_row * self._array[0].nbytes
        binding.bind_output(name, self._memory, 0, self._dtype, shape, address)

    def fill(self, row: npt.NDArray[np.float32]) -> None:
        """Writes the same values [*row_shape] to every row."""
        values = np.broadcast_to(row.astype(self._dtype), self._array.shape)
        if self._memory == "cpu":
            self._array[:] = values
        else:
            self._value.update_inplace(np.ascontiguousarray(values))

    def copy_row(self, source: int, target: int) -> None:
        """Copies one row over another. On the host only."""
        self._array[target] = self._array[source]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self._row_shape


class HostInput:
    """A graph's input [n_rows, ...] that the host writes before each run, through `array`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: type[np.generic], memory: str) -> None:
        self._name = name
        self._memory = memory
        self._copies: dict[
            int, Any
        ] = {}  # number of rows -> OrtValue, where the device has memory of its own
        self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        rows = self.array[:n_rows]
        if self._memory == "cpu":
            binding.bind_input(self._name, "cpu", 0, self.array.dtype, rows.shape, self.array.ctypes.data)
            return
        if n_rows not in self._copies:
            self._copies[n_rows] = load_runtime().OrtValue.ortvalue_from_numpy(rows, self._memory, 0)
        binding.bind_ortvalue_input(self._name, self._copies[n_rows])

    def upload(self, n_rows: int) -> None:
        """Makes what the host wrote to the first rows visible to the device."""
        if n_rows in self._copies:
            self._copies[n_rows].update_inplace(self.array[:n_rows])


class HostOutput:
    """A graph's output [n_rows, ...] that the host reads after each run, through `array`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: type[np.generic], memory: str) -> None:
        self._name = name
        self._memory = memory
        self._copies: dict[int, Any] = {}  # as HostInput's
        self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        rows = self.array[:n_rows]
        if self._memory == "cpu":
            binding.bind_output(self._name, "cpu", 0, self.array.dtype, rows.shape, self.array.ctypes.data)
            return
        if n_rows not in self._copies:
            self._copies[n_rows] = load_runtime().OrtValue.ortvalue_from_numpy(rows, self._memory, 0)
        binding.bind_ortvalue_output(self._name, self._copies[n_rows])

    def download(self, n_rows: int) -> None:
        """Makes what the device wrote to the first rows visible to the host."""
        if n_rows in self._copies:
            self.array[:n_rows] = self._copies[n_rows].numpy()
