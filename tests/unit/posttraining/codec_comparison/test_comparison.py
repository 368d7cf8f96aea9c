"""Whole comparisons, in seconds."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from requirements_gate import require_module

from timbrel_posttraining.codec_comparison import command
from timbrel_posttraining.codec_comparison.comparison import Comparison
from timbrel_posttraining.codec_comparison.designs import DESIGNS, ComparisonConfig, Design
from timbrel_posttraining.codec_comparison.figures import instrument_points
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.notes.dataset import NoteDataset


@pytest.fixture(scope="module", autouse=True)
def needs_the_pitch_tracker() -> None:
    require_module("swift_f0", "demo")


@pytest.fixture(scope="module")
def finished(
    library: NoteDataset,
    notes_design: Design,
    seanet_design: Design,
    adversarial_design: Design,
    config: ComparisonConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a comparison of three designs."""
    folder = tmp_path_factory.mktemp("comparison") / "finished"
    Comparison(library, folder, config).run([notes_design, seanet_design, adversarial_design])
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "comparison"))


def test_every_design_gets_a_row(folder: Path, library: NoteDataset, config: ComparisonConfig) -> None:
    rows = {row.design: row for row in Comparison(library, folder, config).rows()}
    assert set(rows) == {"tiny-notes", "tiny-seanet", "tiny-adversarial"}
    for row in rows.values():
        assert row.spent.steps > 0 and row.predictability.spent.steps > 0
        assert row.reconstruction.n_notes == config.n_judged_notes
        assert 0.0 < row.reconstruction.median_db < 60.0
        assert row.reconstruction.source_in_tune == 1.0
        assert len(row.usage.change) == len(row.predictability.nats_by_codebook) == row.n_codebooks
        guess = math.log(row.codebook_size + 2) * row.tokens_per_second
        assert 0.0 < row.predictability.nats_per_second < 1.5 * guess
    notes, seanet = rows["tiny-notes"], rows["tiny-seanet"]
    assert (notes.sample_rate, notes.frame_rate, notes.tokens_per_second) == (24_000, 50.0, 200.0)
    assert (seanet.sample_rate, seanet.frame_rate, seanet.tokens_per_second) == (12_000, 37.5, 112.5)
    assert rows["tiny-adversarial"].parameters == notes.parameters, "a discriminator is no part of the codec"


def test_the_report_holds_a_table_of_designs_and_one_of_codebooks(folder: Path) -> None:
    entries = json.loads((folder / "comparison.json").read_text())["rows"]
    entry = next(entry for entry in entries if entry["design"] == "tiny-notes")
    assert entry["bits_per_second"] == pytest.approx(entry["predictability"]["nats_per_second"] / math.log(2))
    lines = (folder / "comparison.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith("| tiny-notes"))
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:7] == ["0.005 + 0.005", "24", "50", "4", "200"]
    assert f"{entry['reconstruction']['median_db']:.2f}" in cells
    assert sum(line.startswith("| tiny-notes | codes in use |") for line in lines) == 1
    assert len({line.count("|") for line in lines if line.startswith("| tiny-")}) == 2, "ragged table"


def test_what_is_finished_is_not_done_again(
    folder: Path, library: NoteDataset, notes_design: Design, config: ComparisonConfig
) -> None:
    comparison = Comparison(library, folder, config)
    file = folder / "tiny-notes" / config.budget / "row.json"
    stamp, rows = file.stat().st_mtime_ns, comparison.rows()
    assert comparison.run([notes_design]) == rows
    assert file.stat().st_mtime_ns == stamp


def test_a_killed_run_takes_up_the_codec_it_had_trained(
    folder: Path, library: NoteDataset, notes_design: Design, config: ComparisonConfig
) -> None:
    comparison = Comparison(library, folder, config)
    first = next(row for row in comparison.rows() if row.design == "tiny-notes")
    home = folder / "tiny-notes" / config.budget
    stamp = (home / "codec.safetensors").stat().st_mtime_ns
    (home / "row.json").unlink()
    again = next(row for row in comparison.run([notes_design]) if row.design == "tiny-notes")
    assert (home / "codec.safetensors").stat().st_mtime_ns == stamp
    assert again.spent == first.spent
    assert again.reconstruction == first.reconstruction
    assert again.usage == first.usage


def test_rows_of_other_settings_are_refused(
    folder: Path, library: NoteDataset, notes_design: Design, config: ComparisonConfig
) -> None:
    other = dataclasses.replace(config, batch_size=3)
    with pytest.raises(CheckpointError, match="made with other settings; remove that folder"):
        Comparison(library, folder, other).run([notes_design])
    changed = dataclasses.replace(notes_design, dropout_share=0.5)
    with pytest.raises(CheckpointError, match="made with other design; remove that folder"):
        Comparison(library, folder, config).run([changed])


def test_budgets_stand_side_by_side(
    folder: Path, library: NoteDataset, seanet_design: Design, config: ComparisonConfig
) -> None:
    longer = dataclasses.replace(config, minutes=2 * config.minutes)
    rows = Comparison(library, folder, longer).run([seanet_design])
    assert [row.minutes for row in rows if row.design == "tiny-seanet"] == [config.minutes, longer.minutes]


def test_a_rehearsal_prices_both_trainings_and_leaves_nothing(
    library: NoteDataset, seanet_design: Design, config: ComparisonConfig, tmp_path: Path
) -> None:
    cost = Comparison(library, tmp_path, config).rehearse(seanet_design)
    assert cost.codec_seconds > 0 and cost.decoder_seconds > 0
    assert not list(tmp_path.iterdir())


def test_instruments_stand_apart_in_the_disc() -> None:
    points = instrument_points(30)
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.eye(30) * 9
    assert distances.min() > 0.2
    assert np.linalg.norm(points, axis=1).max() <= 1.0


@pytest.mark.parametrize(
    ("field", "value"), [("minutes", 0.0), ("precision", "float16"), ("n_judged_notes", 0)]
)
def test_settings_that_cannot_be_used_are_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: "):
        ComparisonConfig(**{field: value})  # type: ignore[arg-type]


def test_the_command_lists_designs(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--list"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [design.name for design in DESIGNS]
