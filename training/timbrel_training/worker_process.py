"""Has each process that measures or codes notes beside others keep to one core, and keep its memory."""

from __future__ import annotations

import ctypes
import sys

import torch
from threadpoolctl import threadpool_limits

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's names, see mallopt(3)."""
LARGEST_KEPT = 2**30
"""Bytes."""


def begin() -> None:
    """Keeps this process to one thread, of torch and of numpy, and has it keep the memory that it frees.

    Threads of several processes fight for the cores: by waiting for each other they make small products ten
    times as slow. Arrays of a note's length are made and freed all the time: glibc gives each back to the
    system, and half the time went by in having its pages again.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_KEPT - 1)
