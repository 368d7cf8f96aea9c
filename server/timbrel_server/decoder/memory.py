"""The memory that a graph works in: its inputs, its outputs, and what it keeps between runs. Addresses are
fixed, so that they can be bound once and for all."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel_bundle.runtime import load_runtime

HUGE_PAGE_BYTES = 2 << 20

ALIGNMENT = 256
"""Of addresses, in bytes: kernels read in wide words."""


class Memory(NamedTuple):
    """A device's memory, named as onnxruntime's bindings want it."""

    device: str
    """"cpu" or "cuda"."""

    device_id: int
    """Which of several devices of a kind, from 0."""

    def value(self, shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
        """Makes an OrtValue of zeros there, with no copy of it on the host that lasts."""
        value = load_runtime().OrtValue.ortvalue_from_shape_and_type(shape, dtype, *self)
        value.update_inplace(np.zeros(shape, dtype))
        return value


HOST = Memory("cpu", 0)
"""The CPU's memory."""

Bind: TypeAlias = Callable[..., None]
"""The method `bind_input` or `bind_output` of a graph's binding."""


class Arena:
    """Numbers [n_rows, *row_shape], one row per slot.

    A run at a smaller batch binds the first rows alone. It starts as zeros: rows and positions that are not
    in use take part in the arithmetic with weight zero, so they may hold any number but not NaN.
    """

    def __init__(
        self, n_rows: int, row_shape: tuple[int, ...], memory: Memory, dtype: type[np.number] = np.float32
    ) -> None:
        self._memory = memory
        self.row_shape = row_shape
        self.dtype = dtype
        self._row_bytes = math.prod(row_shape) * np.dtype(dtype).itemsize
        self._n_rows = n_rows
        # The memory itself: an array of the host's, or a device's OrtValue.
        self._array: npt.NDArray[np.generic] | None = None
        self._value: Any = None
        if memory == HOST:
            self._array = zeros((n_rows, *row_shape), dtype)
            self._base: int = self._array.ctypes.data
        else:
            self._value = memory.value((n_rows, *row_shape), dtype)
            self._base = self._value.data_ptr()

    def bind(self, how: Bind, name: str, n_rows: int, first_row: int = 0) -> None:
        """Binds rows from `first_row` on to a graph's input or output of this name."""
        address = self._base + first_row * self._row_bytes
        how(name, *self._memory, self.dtype, (n_rows, *self.row_shape), address)

    def fill(self, row: npt.NDArray[np.float32]) -> None:
        """Writes the same values [*row_shape] to every row."""
        values = np.broadcast_to(row.astype(self.dtype), (self._n_rows, *self.row_shape))
        if self._array is not None:
            self._array[:] = values
        else:
            self._value.update_inplace(np.ascontiguousarray(values))

    def copy_row(self, source: int, target: int) -> None:
        """Copies one row over another. On the host only."""
        assert self._array is not None
        self._array[target] = self._array[source]


class SharedArrays:
    """Arrays [n_rows, ...] that the host and a graph have in common, side by side in one block.

    Whatever their number, one copy takes them to a device, or none where they are pinned; on the CPU the
    graph works in the same.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[tuple[int, ...], type[np.generic]]],
        memory: Memory,
        *,
        pinned: bool = False,
    ) -> None:
        """
        Args:
            shapes: by the names of the graph's inputs or outputs: shape, the rows first, and type.
            pinned: a device reaches into the host's memory, for what is new at each step. On an H200 a step
                of one row takes 0.27 ms so, and 0.37 with a copy up and one down.
        """
        self._memory = memory
        self._offsets, n_bytes = {}, 0
        for name, (shape, dtype) in shapes.items():
            self._offsets[name] = n_bytes
            n_bytes += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        is_mapped = pinned and memory != HOST
        self._block = _pinned_zeros(n_bytes) if is_mapped else _aligned_zeros(n_bytes)
        self._value = None if is_mapped or memory == HOST else memory.value((n_bytes,), np.uint8)
        self._base: int = self._block.ctypes.data if self._value is None else self._value.data_ptr()
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: np.ndarray(shape, dtype, self._block, self._offsets[name])
            for name, (shape, dtype) in shapes.items()
        }
        """By name; the host's."""

    def bind(self, how: Bind, n_rows: int, first_row: int = 0) -> None:
        """Binds these rows of every array to the graph's input or output of its name."""
        for name, array in self.arrays.items():
            address = self._base + self._offsets[name] + first_row * array.strides[0]
            how(name, *self._memory, array.dtype, (n_rows, *array.shape[1:]), address)

    def upload(self) -> None:
        """Makes what the host wrote visible to the device."""
        if self._value is not None:
            self._value.update_inplace(self._block)


def _aligned_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    block: npt.NDArray[np.uint8] = np.zeros(n_bytes + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    return block[first : first + n_bytes]


def cuda_runtime() -> ctypes.CDLL:
    """CUDA's runtime library: the one that onnxruntime has loaded."""
    return ctypes.CDLL("cudart64_13.dll" if sys.platform == "win32" else "libcudart.so.13")


def _pinned_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Makes zeros in pages that CUDA has pinned, which have the same address on every device."""
    cudart = cuda_runtime()
    address = ctypes.c_void_p()
    portable_and_mapped = 3
    status = cudart.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(n_bytes), portable_and_mapped)
    if status != 0 or address.value is None:
        raise MemoryError(f"CUDA cannot pin {n_bytes} bytes of the host's memory (error {status})")
    block: npt.NDArray[np.uint8] = np.ctypeslib.as_array(
        (ctypes.c_uint8 * n_bytes).from_address(address.value)
    )
    weakref.finalize(block, cudart.cudaFreeHost, address)
    block[:] = 0
    return block


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Makes zeros as numpy.zeros does, on huge pages where the system has them.

    A step's attention reads some kilobytes here and there from tens of megabytes: with pages of 4 kB it takes
    up to 7 % longer, for the addresses' sake. numpy itself asks for huge pages from 4 MB an array on only.
    """
    n_items = math.prod(shape)
    n_bytes = n_items * np.dtype(dtype).itemsize
    if n_bytes < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype=dtype)
    try:
        block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES)
        block.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel without huge pages, as every real-time one is; numpy says where memory ends
        return np.zeros(shape, dtype=dtype)
    start = -np.frombuffer(block, dtype=np.uint8).ctypes.data % HUGE_PAGE_BYTES
    return np.frombuffer(block, dtype=dtype, count=n_items, offset=start).reshape(shape)
