"""The memory that a graph works in: its inputs, its outputs, and what it keeps between runs. Addresses are
fixed, so that they can be bound once and for all."""

from __future__ import annotations

import math
import mmap
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from timbrel_bundle.runtime import load_runtime

HUGE_PAGE_BYTES = 2 << 20


class Memory(NamedTuple):
    """A device's memory, named as onnxruntime's bindings want it."""

    device: str
    """"cpu" or "cuda"."""

    device_id: int
    """Which of several devices of a kind, from 0."""

    def copy_of(self, array: npt.NDArray[np.generic]) -> Any:
        """Makes an OrtValue there with the array's values; on the host it is the array's own memory."""
        return load_runtime().OrtValue.ortvalue_from_numpy(array, *self)


HOST = Memory("cpu", 0)
"""The CPU's memory."""


class Arena:
    """Numbers [n_rows, *row_shape], one row per slot.

    A run at a smaller batch binds the first rows alone. It starts as zeros: rows and positions that are not
    in use take part in the arithmetic with weight zero, so they may hold any number but not NaN.
    """

    def __init__(
        self, n_rows: int, row_shape: tuple[int, ...], memory: Memory, dtype: type[np.number] = np.float32
    ) -> None:
        self._memory = memory
        self._row_shape = row_shape
        self._dtype = dtype
        self._array = zeros((n_rows, *row_shape), dtype)  # the memory itself, on the CPU
        self._value = memory.copy_of(self._array)
        self._base: int = self._value.data_ptr()

    def bind_input(self, binding: Any, name: str, n_rows: int) -> None:
        """Binds the first rows to a graph's input."""
        shape = (n_rows, *self._row_shape)
        binding.bind_input(name, *self._memory, self._dtype, shape, self._base)

    def bind_output(self, binding: Any, name: str, n_rows: int, first_row: int = 0) -> None:
        """Binds rows from `first_row` on to a graph's output."""
        shape = (n_rows, *self._row_shape)
        address = self._base + first_row * self._array[0].nbytes
        binding.bind_output(name, *self._memory, self._dtype, shape, address)

    def fill(self, row: npt.NDArray[np.float32]) -> None:
        """Writes the same values [*row_shape] to every row."""
        values = np.broadcast_to(row.astype(self._dtype), self._array.shape)
        if self._memory == HOST:
            self._array[:] = values
        else:
            self._value.update_inplace(np.ascontiguousarray(values))

    def copy_row(self, source: int, target: int) -> None:
        """Copies one row over another. On the host only."""
        self._array[target] = self._array[source]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self._row_shape


class _HostTensor:
    """A graph's input or output [n_rows, ...] that the host reaches through `array`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: type[np.generic], memory: Memory) -> None:
        self._name = name
        self._memory = memory
        # By number of rows; where the device has memory of its own.
        self._copies: dict[int, Any] = {}
        self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)

    def _copy(self, n_rows: int) -> Any:
        if n_rows not in self._copies:
            self._copies[n_rows] = self._memory.copy_of(self.array[:n_rows])
        return self._copies[n_rows]


class HostInput(_HostTensor):
    """An input that the host writes before each run."""

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        if self._memory == HOST:
            shape = self.array[:n_rows].shape
            binding.bind_input(self._name, *HOST, self.array.dtype, shape, self.array.ctypes.data)
        else:
            binding.bind_ortvalue_input(self._name, self._copy(n_rows))

    def upload(self, n_rows: int) -> None:
        """Makes what the host wrote to the first rows visible to the device."""
        if n_rows in self._copies:
            self._copies[n_rows].update_inplace(self.array[:n_rows])


class HostOutput(_HostTensor):
    """An output that the host reads after each run."""

    def bind(self, binding: Any, n_rows: int) -> None:
        """Binds the first rows."""
        if self._memory == HOST:
            shape = self.array[:n_rows].shape
            binding.bind_output(self._name, *HOST, self.array.dtype, shape, self.array.ctypes.data)
        else:
            binding.bind_ortvalue_output(self._name, self._copy(n_rows))

    def download(self, n_rows: int) -> None:
        """Makes what the device wrote to the first rows visible to the host."""
        if n_rows in self._copies:
            self.array[:n_rows] = self._copies[n_rows].numpy()


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Makes zeros as numpy.zeros does, on huge pages where the system has them.

    A step's attention reads some kilobytes here and there from tens of megabytes: with pages of 4 kB it takes
    up to 7 % longer, for the addresses' sake. numpy itself asks for huge pages from 4 MB an array on only.
    """
    n_items = math.prod(shape)
    n_bytes = n_items * np.dtype(dtype).itemsize
    if n_bytes < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype=dtype)
    block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES)
    block.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(block, dtype=np.uint8).ctypes.data % HUGE_PAGE_BYTES
    return np.frombuffer(block, dtype=dtype, count=n_items, offset=start).reshape(shape)
