"""`timbrel train timbre` and `timbrel train model`, from files to files."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from timbrel.cli import main
from timbrel_training.cli import TrainCommand
from timbrel_training.errors import CheckpointError, ConfigError, TrainingError
from timbrel_training.note_training.train import load_model
from timbrel_training.stages import STAGES
from timbrel_training.timbre import layout
from timbrel_training.timbre.map import TimbreMap, write_map
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable


def run(stage: str, *arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    return STAGES[stage].run(parser.parse_args(["--config", "tiny", *map(str, arguments)]))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has another OpenMP, which tells nothing")
def test_threads_that_wait_sleep() -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        (sys.executable, "-m", "timbrel", "train", "--help"),
        env={**inherited, "OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr


@pytest.mark.parametrize(("chosen", "found"), [(None, "PASSIVE"), ("active", "active")])
def test_threads_that_wait_do_what_they_are_told(
    chosen: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", chosen or "")
    if chosen is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert os.environ["OMP_WAIT_POLICY"] == found


def test_a_training_for_which_memory_is_short_is_one_clear_line() -> None:
    with pytest.raises(MemoryError, match=r"tried to allocate \d+ bytes; choose smaller batches"):
        TrainCommand().run(argparse.Namespace(run_stage=lambda _: torch.empty(2**50)))
    told = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB"
    with pytest.raises(MemoryError, match=r"^CUDA out of memory\. Tried to allocate 2\.00 GiB; choose"):
        TrainCommand().run(argparse.Namespace(run_stage=_raising(torch.OutOfMemoryError(told))))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        TrainCommand().run(argparse.Namespace(run_stage=_raising(RuntimeError("an illegal memory access"))))


def _raising(error: Exception) -> Callable[[argparse.Namespace], int]:
    def run_stage(_: argparse.Namespace) -> int:
        raise error

    return run_stage


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
@pytest.mark.skipif(os.cpu_count() == 1, reason="there is one core")
def test_there_is_a_process_for_each_core_that_this_one_is_bound_to() -> None:
    parser = argparse.ArgumentParser()
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(bound)})  # as batch systems and containers do
    try:
        STAGES["tokens"].configure(parser)
    finally:
        os.sched_setaffinity(0, bound)
    assert parser.parse_args(["--notes", "notes", "--codec", "codec", "--out", "tokens.bin"]).jobs == 1


HEADER = TokenHeader("test", "0", 48_000, 960, 3, 1024)


@pytest.fixture
def store(tmp_path: Path, library_table: TokenTable) -> Path:
    return write_store(tmp_path / "tokens.bin", library_table, HEADER)


def write_store(path: Path, table: TokenTable, header: TokenHeader) -> Path:
    with TokenStoreWriter(path, header) as writer:
        for number in range(table.n_notes):
            owner = int(table.instrument[number])
            writer.add(
                table.note(number),
                table.instruments[owner],
                table.families[owner],
                int(table.pitch[number]),
                int(table.velocity[number]),
                int(table.held_frames[number]),
                "test",
                int(table.split[number]),
                bool(table.cut[number]),
            )
        writer.finish()
    return path


def test_what_a_stage_says_is_in_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run of hours would leave an empty log."""
    log = tmp_path / "log.txt"

    def stage(_: argparse.Namespace) -> int:
        print("step 100: training 0.3361")
        return len(log.read_text().splitlines())

    with log.open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert TrainCommand().run(argparse.Namespace(run_stage=stage)) == 1


def test_a_table_is_its_store(store: Path, library_table: TokenTable) -> None:
    read, table = TokenTable.read(store), library_table
    assert read.instruments == table.instruments
    assert (read.n_frames == table.n_frames).all()
    assert (read.note(7) == table.note(7)).all()
    assert (read.cut == table.cut).all()


def test_from_tokens_to_a_model_and_a_sitting_that_ends_early_is_no_success(
    tmp_path: Path,
    library_dir: Path,
    store: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "N_STEPS", 100)  # where instruments lie does not matter here
    out, model = tmp_path / "timbre", tmp_path / "model"
    timbre = ("timbre", "--tokens", store, "--notes", library_dir, "--out", out)
    assert run(*timbre, "--set", "timbre.loop.max_minutes=1e-9") == 3
    told = "stopped before the last step; run the same command again to go on\n"
    assert capsys.readouterr().out.endswith(f"{out}: {told}")
    assert run(*timbre) == 0
    assert "accuracy" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} > {"map.png", "timbre_map.json", "note_timbres.npy"}
    wanted = ("model", "--tokens", store, "--timbre", out, "--out", model)
    assert run(*wanted, "--set", "note_training.loop.max_minutes=1e-9") == 3
    assert capsys.readouterr().out.endswith(f"{model}: {told}")
    assert run(*wanted) == 0
    said = capsys.readouterr().out
    assert "held out" in said and "heads are" not in said
    assert (model / "model.safetensors").is_file()


def test_heads_that_no_bundle_has_are_told_of_before_they_are_trained(
    tmp_path: Path, library_table: TokenTable, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = TimbreMap.from_places(np.eye(4, 2, dtype=np.float32), library_table)
    write_map(tmp_path / "timbre", chart, chart.centroids[library_table.instrument], library_table)
    wanted = ["--tokens", store, "--timbre", tmp_path / "timbre", "--out", tmp_path / "model"]
    few = ["--set", "note_training.loop.n_steps=1", "--set", "model.d_model=24"]
    assert run("model", *wanted, *few) == 0
    assert capsys.readouterr().out.startswith("heads are 12 wide: such a model trains, but no bundle can be")


@pytest.mark.parametrize(("delay", "says_headers"), [(0, True), (1, False)])
def test_a_network_says_headers_where_no_codebook_runs_behind(
    tmp_path: Path, library_table: TokenTable, delay: int, says_headers: bool
) -> None:
    chart = TimbreMap.from_places(np.eye(4, 2, dtype=np.float32), library_table)
    write_map(tmp_path / "timbre", chart, chart.centroids[library_table.instrument], library_table)
    header = TokenHeader("test", "0", 24_000, 480, 3, 1024, lead_frames=4, codebook_delay=delay)
    store = write_store(tmp_path / "tokens.bin", library_table, header)
    wanted = ["--tokens", store, "--timbre", tmp_path / "timbre", "--out", tmp_path / "model"]
    assert run("model", *wanted, "--set", "note_training.loop.n_steps=1") == 0
    assert (load_model(tmp_path / "model").header is not None) == says_headers


def test_mistakes_are_one_clear_error(tmp_path: Path, library_dir: Path, store: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(TrainingError, match=r"nothing\.bin"):
        run("timbre", "--tokens", tmp_path / "nothing.bin", "--notes", library_dir, "--out", out)
    with pytest.raises(TrainingError, match="not a dataset of notes"):
        run("timbre", "--tokens", store, "--notes", tmp_path / "nowhere", "--out", out)
    with pytest.raises(CheckpointError, match="train stage 1 first"):
        run("model", "--tokens", store, "--timbre", tmp_path / "nowhere", "--out", out)
    with pytest.raises(ConfigError, match="expected auto, cpu or cuda"):
        run("model", "--tokens", store, "--timbre", out, "--out", out, "--device", "tpu")
    assert not out.exists()
