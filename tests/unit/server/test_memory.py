"""Arrays on huge pages are arrays like others; what CUDA's library is called."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from timbrel_server.decoder.memory import HUGE_PAGE_BYTES, cuda_runtime, zeros


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
    try:
        mmap.mmap(-1, HUGE_PAGE_BYTES).madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError) as error:
        pytest.skip(f"this system has no huge pages: {error}")
    assert zeros((3, HUGE_PAGE_BYTES), np.float32).ctypes.data % HUGE_PAGE_BYTES == 0


def test_a_kernel_without_huge_pages_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9999)  # as unknown to this one as the real one is there
    array = zeros((2, HUGE_PAGE_BYTES), np.float32)
    assert array.shape == (2, HUGE_PAGE_BYTES) and not array.any()


def test_more_than_there_is_is_no_operating_system_s_error() -> None:
    with pytest.raises(MemoryError):
        zeros((1 << 24, 1 << 24), np.float32)


def test_cudas_library_is_called_otherwise_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(OSError, match=r"cudart64_13\.dll"):  # as onnxruntime calls it there
        cuda_runtime()
