"""Which process runs on which core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[3]


def start_pinned(
    arguments: list[str],
    cores: Collection[int],
    *,
    stderr: IO[Any] | None = None,
    changes: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts `python ARGUMENTS` in the repository's root, confined to these cores, with one thread for BLAS;
    its standard input and output are pipes.

    Args:
        changes: to the environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIMBREL_")}
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    environment |= changes or {}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=ROOT,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
