"""Arrays on huge pages are arrays like others."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel_server.decoder.memory import HUGE_PAGE_BYTES, zeros


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 232, 512)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_zeros(shape: tuple[int, ...], dtype: type[np.floating]) -> None:
    array = zeros(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.writeable and array.flags.c_contiguous
    assert not array.any()
    array[-1] = 7
    assert (array[-1] == 7).all() and not array[:-1].any()


def test_a_large_one_begins_at_a_huge_page() -> None:
    assert zeros((3, HUGE_PAGE_BYTES), np.float32).ctypes.data % HUGE_PAGE_BYTES == 0
