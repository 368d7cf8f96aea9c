"""Processes that work beside others keep to one core."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import numpy, torch
from threadpoolctl import threadpool_info
from timbrel_training import worker_process
worker_process.begin()
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(torch.get_num_threads(), max(pool["num_threads"] for pool in threadpool_info()))
"""


def test_torch_and_numpy_keep_to_one_thread() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
