"""Whole servers on the stand-in: captures before notes, reloads under load, several bundles and devices."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cuda_check.stand_in import StandIn
from in_process_server import reload, run, serving, wait_until_idle

from timbrel_bundle.manifest import bundle_hash, load_manifest, save_manifest
from timbrel_bundle.runtime import CUDA
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import BundleSource
from timbrel_server.served_bundles.served_bundle import ServedBundle

ROOT = Path(__file__).resolve().parents[2]
N_RELOADS = 4
ON_CUDA = {"provider": "cuda", "n_slots": 8}


@pytest.fixture(autouse=True)
def slow_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each capture takes some milliseconds more: what would come in between does."""
    monkeypatch.setenv("STAND_IN_CAPTURE_US", "5000")


def note(seed: int, bundle: str = "") -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=0.5, seed=seed, bundle=bundle)


async def notes_all_the_time(stub: Any, stop: asyncio.Event, names: list[str]) -> int:
    """Asks for one note after another, eight at once; returns how many came whole."""

    async def one_caller(number: int) -> int:
        n = 0
        while not stop.is_set():
            async for _ in stub.Generate(note(n, names[number % len(names)])):
                pass
            n += 1
        return n

    return sum(await asyncio.gather(*(one_caller(number) for number in range(8))))


def touch(folder: Path, n: int) -> None:
    """Changes the bundle's hash, and nothing that it sounds by."""
    changed = folder / "timbre_map.json"
    new = changed.with_suffix(".new")
    new.write_text(changed.read_text() + "\n" * n)
    os.replace(new, changed)
    manifest = load_manifest(folder / "manifest.json")
    for file in manifest.files:
        if file.name == changed.name:
            file.size = changed.stat().st_size
            file.sha256 = hashlib.sha256(changed.read_bytes()).hexdigest()
    manifest.bundle_hash = bundle_hash(manifest.files)
    save_manifest(manifest, folder / "manifest.json")


def test_all_is_captured_on_the_engines_thread_before_serving(tiny_bundle: Path, stand_in: StandIn) -> None:
    async def check() -> None:
        before = len(stand_in.captures)
        async with serving(tiny_bundle, **ON_CUDA, fast=True) as (app, stub, _):
            made = stand_in.captures[before:]
            assert app.engine is not None
            [engine] = app.engine.engines
            # Of 1, 2, 4 and 8 rows, and the condition encoder.
            assert [thread for thread, _ in made] == [engine._thread.native_id] * 5
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(1.0, stop.set)
            assert await notes_all_the_time(stub, stop, [""]) > 0
            assert len(stand_in.captures) == before + 5

    run(check)


def test_a_bundle_reloads_under_load(tiny_bundle: Path, tmp_path: Path, stand_in: StandIn) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")

    async def check() -> None:
        async with serving(folder, **ON_CUDA) as (app, stub, _):
            stop = asyncio.Event()
            notes = asyncio.create_task(notes_all_the_time(stub, stop, [""]))
            for n in range(1, N_RELOADS + 1):
                touch(folder, n)
                await reload(app)
            stop.set()
            assert await notes > 0
            await wait_until_idle(app)
            assert not app.has_failed

    before = len(stand_in.captures)
    run(check)
    assert len(stand_in.captures) - before >= 2 * (N_RELOADS + 1)


def test_two_bundles_on_two_devices(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "second")

    async def check() -> None:
        async with serving(tiny_bundle, **ON_CUDA, devices=(0, 1)) as (app, stub, _):
            other = ServedBundle(app._loader.open(BundleSource(folder, "second")).bundle, "second")
            stop = asyncio.Event()
            notes = asyncio.create_task(notes_all_the_time(stub, stop, [""]))
            await app._loader.start(other)  # captures on both devices, while both write notes
            stop.set()
            assert await notes > 0
            assert other.engine is not None and other.sessions.provider == CUDA
            assert len(other.engine.engines) == 2
            await asyncio.to_thread(other.close)
            assert not app.has_failed

    run(check)


def test_captures_that_fail_leave_launches(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stand_in: StandIn
) -> None:
    monkeypatch.setenv("STAND_IN_CAPTURE", "fail")

    async def check() -> None:
        with caplog.at_level(logging.WARNING, "timbrel_server"):
            async with serving(tiny_bundle, **ON_CUDA) as (app, stub, _):
                assert "kernel by kernel" in caplog.text
                replies = [reply async for reply in stub.Generate(note(1))]
                assert replies[-1].finish_reason
                assert not app.has_failed

    before = stand_in.totals["graph_launches"]
    run(check)
    assert stand_in.totals["graph_launches"] == before


def test_the_gpu_benchmark_comes_to_its_end(tiny_bundle: Path) -> None:
    program = [sys.executable, "tests/benchmarks/gpu.py", "--dry-run", "--provider", "cuda"]
    done = subprocess.run(
        [*program, "--bundle", str(tiny_bundle)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "violation" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["dry_run"] is True
