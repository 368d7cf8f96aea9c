"""The benchmarks at tiny sizes: each ends in one line of JSON with the figures that it promises.

They judge nothing here: a tiny model's figures on a busy machine say nothing, but they are there and sound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from timbrel_bundle.runtime import CUDA, obstacle

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "tests" / "data" / "tiny_bundle"
SCRIPTS = ("decode", "profile", "codec", "serve", "gpu", "library", "explore", "reload", "host")

pytestmark = pytest.mark.slow


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a benchmark from a folder that is not the repository's."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "benchmarks" / f"{script}.py"), *options]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env=environment, timeout=500
    )


def figures(script: str, *options: str) -> dict[str, Any]:
    """The last line of a benchmark that ends well."""
    done = run(script, *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["benchmark"] == script
    assert len(found["load_average"]["start"]) == len(found["load_average"]["end"]) == 3
    assert found["machine"]["cores"] == os.cpu_count()
    return found


SEVERAL = """
import contextlib, io, json, runpy, sys
said = []
for words in json.loads(sys.argv[1]):
    sys.argv = words
    status = 0
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as ended:
            status = ended.code or 0
    said.append([status, printed.getvalue()])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[int, str]]:
    """What each benchmark ends with and says of --help, and that for the GPU where it is to measure, too: all
    in one process, since to import torch takes longer than all else."""
    asked = {script: [script, "--help"] for script in SCRIPTS}
    if obstacle(CUDA) is not None:
        asked["gpu alone"] = ["gpu"]
    words = [
        [str(ROOT / "tests" / "benchmarks" / f"{script}.py"), *options] for script, *options in asked.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(words)], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: (status, printed) for name, (status, printed) in zip(asked, found, strict=True)}


def test_help_teaches_by_example(said: dict[str, tuple[int, str]]) -> None:
    for script in SCRIPTS:
        status, printed = said[script]
        assert status == 0 and f"python tests/benchmarks/{script}.py --quick" in printed, script


@pytest.mark.skipif(obstacle(CUDA) is None, reason="there is a GPU here")
def test_the_gpu_benchmark_says_that_there_is_no_gpu(said: dict[str, tuple[int, str]]) -> None:
    status, printed = said["gpu alone"]
    lines = [line for line in printed.splitlines() if line.startswith("no GPU here: ")]
    assert status == 0 and len(lines) == 1
    assert json.loads(printed.splitlines()[-1])["gpu"] is False


@pytest.mark.acceptance
def test_decode_compares_all_sides() -> None:
    found = figures(
        "decode",
        *("--quick", "--shapes", "bundle", "--batches", "1", "2", "--positions", "50"),
        *("--bundle", str(BUNDLE), "--stream-seconds", "1"),
    )
    for name in ("vs_best_torch", "vs_concat", "vs_best_torch_8bit", "roofline"):
        assert set(found[name]) == {"1", "2"}
        assert all(ratio > 0 for ratio in found[name].values()), name
    assert found["worst_ratio"] == min(found["vs_best_torch"].values())
    assert found["single_stream_real_time"] > 0
    assert found["real_time_streams"] >= 1


def test_profile_names_every_node_and_the_bound() -> None:
    found = figures("profile", "--quick", "--bundle", str(BUNDLE), "--batches", "1", "2", "--position", "20")
    assert set(found["roofline"]) == {"1", "2"}
    for batch in found["batches"].values():
        assert batch["roofline"] > 0
        assert batch["nodes"]["GroupQueryAttention"] == 2  # of two layers
        assert batch["nodes"]["TopK"] == 1


def test_profile_refuses_a_position_beyond_the_cache() -> None:
    done = run("profile", "--bundle", str(BUNDLE), "--position", "5000")
    assert done.returncode == 1
    assert "position 5000 is beyond the cache" in done.stderr
    assert "Traceback" not in done.stderr


def test_host_reports_what_a_row_and_step_cost_without_graphs() -> None:
    found = figures("host", "--quick", "--rows", "1", "3", "--codebooks", "2")
    for by_rows in found["microseconds_a_row_and_step"].values():
        assert set(by_rows) == {"1", "3"}
        assert all(microseconds > 0 for microseconds in by_rows.values())


@pytest.mark.acceptance
def test_codec_reports_real_time_by_chunk() -> None:
    found = figures("codec", "--quick", "--bundle", str(BUNDLE), "--chunks", "1", "4", "--batches", "1", "2")
    assert set(found["real_time"]) == {"1", "4", "whole"}
    for by_batch in found["real_time"].values():
        assert set(by_batch) == {"1", "2"}
        assert all(factor > 0 for factor in by_batch.values())


def test_serve_measures_a_real_server_beside_the_bare_engine_and_a_client() -> None:
    found = figures(
        "serve",
        *("--quick", "--bundle", str(BUNDLE), "--seconds", "0.5", "--rounds", "1", "--clients", "1"),
        *("--concurrency", "1", "4"),
    )
    assert found["server_over_engine"] > 0
    assert found["idle_first_chunk_over_compute"] > 0
    latencies = found["first_chunk_ms"]
    assert 0 < latencies["p50"] <= latencies["p95"] <= latencies["p99"]
    assert found["notes_per_second"] > 0
    assert [each["concurrency"] for each in found["rendered"]["results"]] == [1, 4]
    assert all(each["notes_per_second"] > 0 for each in found["rendered"]["results"])


@pytest.mark.acceptance
def test_the_gpu_benchmark_runs_dry(tmp_path: Path) -> None:
    out = tmp_path / "stages.jsonl"
    options = ("--precisions", "fp32", "int8", "--bundle", str(BUNDLE), "--out", str(out))
    found = figures("gpu", "--dry-run", *options)
    assert found["gpu"] is False and found["dry_run"] is True
    assert not [stage for stage, each in found.items() if isinstance(each, dict) and "error" in each]
    assert found["correctness"]["mean_kl"] < 1e-6 and found["correctness"]["agreement"] == 1.0
    assert found["agreement"]["fp32"]["captured_equals_eager"] is True
    assert found["agreement"]["fp32"]["steps_as_on_the_cpu"] == [8, 8]
    assert list(found["step_ms"]) == ["1", "2", "3", "4"]
    assert found["soak"]["reloaded"] == found["soak"]["hangups"] > 0 and not found["soak"]["engine_died"]
    assert found["gpu_tests"]["status"] == 0 and found["streams"]["first_chunk_streams"] == 2
    stages = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["stage"] for each in stages] == found["stages"]


def test_explore_measures_the_bridge() -> None:
    found = figures("explore", "--quick", "--bundle", str(BUNDLE), "--parts", "bridge", "--rounds", "2")
    for sound in ("preview_first", "preview_last", "live_first"):
        assert set(found[sound]) == {"direct_ms", "bridged_ms", "added_ms", "ratio"}
        assert found[sound]["bridged_ms"] > 0
    assert set(found["bars_met"]) == {"bridged_preview_first_ms", "bridged_live_first_ms"}
