"""The soak benchmark, for seconds: what it finds in a minute or ten is its own to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300.0


@pytest.mark.acceptance
def test_a_few_seconds_of_it(tiny_bundle: Path) -> None:
    command = [sys.executable, "tests/benchmarks/soak.py", "--minutes", "0.2", "--floods"]
    command += ["--bundle", str(tiny_bundle)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["crashed"] is False, done.stderr
    assert found["unanswered"] == found["refused_wrong_code"] == found["internal_errors"] == 0, found[
        "examples"
    ]
    assert found["accepted"] == found["answered"] + found["given_up"] > 0
    assert found["hostile_calls"] > 0 and found["killed_clients"] > 0 and found["floods"]["gzip bombs"] > 0
    assert found["batch_items"] > 0
    assert found["stuck_batches"] == 0
    assert found["health_failed"] == 0
    assert found["health_ms"]["p50"] > 0
    assert found["throughput_over_sustainable"] > 0
    assert {"rss_growth", "refused"} <= set(found)
