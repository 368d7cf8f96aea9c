"""Memory at a fixed address, so that it can be bound to a graph's inputs and outputs once and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_server.decoder.host_memory import zeros
from timbrel_server.decoder.memory import HOST, Memory


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
        """Shape of one row."""
        return self._row_shape
