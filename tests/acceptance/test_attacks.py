"""Attacks at ten times the size that once took a server down: it keeps within its memory, gives it back, and
goes on answering others. How soon it answers them, `tests/benchmarks/attack.py` measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.acceptance

ATTACK = Path(__file__).resolve().parents[1] / "benchmarks" / "attack.py"
PATIENCE_SECONDS = 600.0


def attacked(*options: str) -> dict[str, Any]:
    """The benchmark's figures."""
    command = [sys.executable, str(ATTACK), "--parts", "memory", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(figures["memory"])
    return figures


@pytest.mark.parametrize(
    "attack",
    ["gzip bombs", "pings", "unfinished, no token", "unfinished health", "unread files", "unread audio"],
)
def test_memory_stays_bounded_and_others_are_answered(attack: str) -> None:
    figures = attacked("--times", "10", "--attacks", attack)
    assert figures["bars_met"]["peak MiB"] and figures["bars_met"]["MiB left after"], figures["memory"]
    assert all(row["notes"] and not row["faults"] for row in figures["memory"]), figures["memory"]


def test_headers_that_only_a_proxy_bounds_are_measured_and_not_judged() -> None:
    figures = attacked("--quick", "--attacks", "huge headers")
    (row,) = figures["memory"]
    assert row["attack"] == "huge headers" and row["notes"] and not row["faults"]
    assert not figures["bars_met"]
