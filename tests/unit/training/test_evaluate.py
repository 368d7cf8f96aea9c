"""Judging tuning: of source notes, of what the codec keeps, of what a model writes."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.config import load_config
from timbrel_training.errors import TrainingError
from timbrel_training.evaluate import command
from timbrel_training.evaluate.tuning import TuningReport, pick_notes
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.notes import command as notes_command
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.notes.split import Split
from timbrel_training.timbre.map import MapPoint, TimbreMap, write_map
from timbrel_training.token_table import from_notes


@pytest.fixture
def library_dir(tmp_path: Path) -> Path:
    parser = argparse.ArgumentParser()
    notes_command.configure(parser)
    out = tmp_path / "notes"
    changes = ["--set", "notes.cell_fraction=0.3"]
    arguments = ["--config", "tiny", *changes, "--source", "synthetic", "--out", str(out), "--jobs", "1"]
    assert notes_command.run(parser.parse_args(arguments)) == 0
    return out


def chart_of(library: AudioLibrary) -> TimbreMap:
    points = [
        MapPoint(name, family, 0.1 * index, 0.0, 60, 63)
        for index, (name, family) in enumerate(
            zip(library.instruments, library.instrument_families, strict=True)
        )
    ]
    return TimbreMap(tuple(points))


def test_shares_count_only_notes_within_half_a_semitone() -> None:
    report = TuningReport(
        asked=[60, 61, 62, 63],
        source=[60.1, 61.0, 62.0, 63.49],
        codec=[60.1, 61.6, 62.0, None],
        generated=[72.0, None, None, 63.4],
        seconds=[(1.0, 2.0)] * 4,
    )
    assert [report.share(name) for name in ("source", "codec", "generated")] == [1.0, 0.5, 0.25]
    assert "2.00" in report.lines()[-1]


def test_the_same_notes_are_picked_every_time(library_dir: Path) -> None:
    library = AudioLibrary(library_dir)
    chart = chart_of(library)
    rows = pick_notes(library, chart, Split.HELD_OUT_CELL, 5)
    assert np.array_equal(rows, pick_notes(library, chart, Split.HELD_OUT_CELL, 5))
    assert (library.split[rows] == Split.HELD_OUT_CELL).all()
    with pytest.raises(TrainingError, match="no notes of split held_out_cell"):
        pick_notes(library, TimbreMap(()), Split.HELD_OUT_CELL, 5)


def test_evaluate_prints_the_three_shares(
    tmp_path: Path, library_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    config = load_config("tiny")
    codec = TimbrelNotes(config.codec.codec)
    save_weights(tmp_path / "codec", "codec", codec, {"id": codec.id, "config": asdict(codec.config)})
    shape = replace(config.model, codebook_size=codec.codebook_size, n_codebooks=codec.n_codebooks)
    save_weights(tmp_path / "model", "model", NoteTransformer(shape), {"model": asdict(shape)})
    library = AudioLibrary(library_dir)
    empty = from_notes(
        [np.zeros((1, codec.n_codebooks), np.uint16)],
        instrument=[0],
        pitch=[60],
        velocity=[1],
        held_frames=[1],
        split=[0],
        instruments=[("Any", "Any")],
        codebook_size=codec.codebook_size,
        frame_rate=codec.frame_rate,
    )
    (tmp_path / "timbre").mkdir()
    write_map(tmp_path / "timbre", chart_of(library), np.zeros((1, 2), np.float32), empty)
    parser = argparse.ArgumentParser()
    command.configure(parser)
    folders = [f"--{name}={tmp_path / name}" for name in ("notes", "codec", "timbre", "model")]
    assert command.run(parser.parse_args([*folders, "--count", "3"])) == 0
    printed = capsys.readouterr().out
    assert "3 notes" in printed and "source     100.0 %" in printed
