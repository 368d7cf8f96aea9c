"""`timbrel export`, from the folders that training leaves behind to a bundle."""

from __future__ import annotations

import dataclasses
import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import write_message
from timbrel_export.bundle_folder import HOLD_SECONDS, git_revision
from timbrel_export.trained import load_trained
from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.interface import codec_hash
from timbrel_training.notes.split import Split
from timbrel_training.timbre.map import MapPoint, TimbreMap, write_map
from timbrel_training.timbre.references import REFERENCES_FILE
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """Folders of a finished training, to be changed at will: codec, tokens.bin, timbre, model."""
    return shutil.copytree(finished, tmp_path / "runs")


@pytest.fixture(scope="module")
def finished(tiny: Any, recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same folders, not to be written to."""
    runs = tmp_path_factory.mktemp("finished")
    save_weights(
        runs / "codec",
        "codec",
        tiny.codec,
        {"id": tiny.codec.id, "config": dataclasses.asdict(recipe.CODEC)},
    )
    _write_tokens(runs / "tokens.bin", tiny, recipe)
    encoder = {
        "encoder": dataclasses.asdict(recipe.TIMBRE),
        "sample_rate": recipe.CODEC.sample_rate,
        "n_instruments": len(recipe.INSTRUMENTS),
    }
    save_weights(runs / "timbre", "timbre_encoder", tiny.timbre_encoder, encoder)
    chart = TimbreMap(
        tuple(MapPoint(name, family, x, y, 36, 96) for name, family, x, y in recipe.INSTRUMENTS)
    )
    points = np.array([note.timbre for note in tiny.notes], dtype=np.float32)
    write_map(runs / "timbre", chart, points, TokenTable.read(runs / "tokens.bin"))
    write_message(recipe.make_references(tiny.timbre_encoder, tiny.codec), runs / "timbre" / REFERENCES_FILE)
    about = {
        "model": dataclasses.asdict(recipe.MODEL),
        "codec_hash": codec_hash(runs / "codec"),
        "frame_rate": 50.0,
        "lead_frames": 4,
        "ranges": {"pitch": [36, 96], "velocity": [2, 126], "held_seconds": [0.1, 3.0]},
        "steps": 1200,
        "validation": {"held_out": 0.75, "training": 0.5},
    }
    save_weights(runs / "model", "model", tiny.model, about)
    return runs


def _write_tokens(path: Path, tiny: Any, recipe: ModuleType) -> None:
    codec = recipe.CODEC
    header = TokenHeader(
        "timbrel-notes-2",
        codec_hash(path.parent / "codec"),
        codec.sample_rate,
        codec.hop_length,
        recipe.MODEL.n_codebooks,
        codec.codebook_size,
    )
    with TokenStoreWriter(path, header) as writer:
        for number, note in enumerate(tiny.notes):
            split = Split.HELD_OUT_CELL if number == 1 else Split.TRAIN
            instrument, family, *_ = recipe.INSTRUMENTS[number]
            velocity = int(note.velocity)
            writer.add(
                note.codes, instrument, family, note.pitch, velocity, note.held_frames, "a font", int(split)
            )
        writer.finish()


def export(runs: Path, out: Path, *options: str) -> int:
    folders = [f"--{name}={runs / name}" for name in ("codec", "timbre", "model")]
    return main(["export", *folders, f"--tokens={runs / 'tokens.bin'}", f"--out={out}", *options])


def test_a_training_becomes_a_bundle(
    runs: Path,
    tamper: Callable[..., None],
    tiny: Any,
    recipe: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tamper(lambda folder: None)
    assert export(runs, tmp_path / "mine") == 0
    manifest = Bundle.open(tmp_path / "mine").manifest
    assert manifest.name == "mine"
    assert manifest.git_revision == git_revision()
    assert [point.instrument for point in Bundle.open(tmp_path / "mine").timbre_map.points] == [
        name for name, *_ in recipe.INSTRUMENTS
    ]
    ranges = manifest.ranges
    assert (ranges.pitch_min, ranges.pitch_max, ranges.velocity_min, ranges.velocity_max) == (36, 96, 2, 126)
    # Half a frame less than the shortest hold; keys are held on from near the cap, lower than the longest.
    assert (ranges.seconds_min, ranges.seconds_max) == (0.09, HOLD_SECONDS)
    assert 4 < manifest.model.hold_frames < recipe.MODEL.max_frames
    assert manifest.codec.moves and len(manifest.codec.code_bases) == 4 * manifest.codec.n_codebooks
    (source,) = manifest.training.sources
    assert (source.name, source.licence, source.n_notes, source.n_instruments) == ("a font", "unknown", 2, 2)
    assert (manifest.training.n_steps, manifest.training.validation_loss) == (1200, 0.75)
    assert "logits within" in capsys.readouterr().out


def test_a_bundle_states_all_that_its_parts_learnt_from_once(runs: Path) -> None:
    meta = {"name": "EnCodec's weights", "licence": "CC-BY-NC-4.0"}
    earlier = {"name": "older", "licence": "MIT", "n_instruments": 3, "n_notes": 70}
    for folder, sources in (
        ("codec", [meta, earlier]),
        (
            "model",
            [{"name": "a font"}, meta, earlier, {"name": "others"}, {"name": "a font", "licence": "MIT"}],
        ),
    ):
        path = runs / folder / f"{folder}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "sources": sources}))
    folders = (runs / name for name in ("model", "timbre", "codec", "tokens.bin"))
    found = load_trained(*folders, None, 1).training.sources
    assert [(each.name, each.licence, each.n_notes) for each in found] == [
        ("a font", "unknown", 2),
        ("EnCodec's weights", "CC-BY-NC-4.0", 0),
        ("older", "MIT", 70),
        ("others", "unknown", 0),
        ("a font", "MIT", 0),
    ]


@pytest.mark.parametrize("missing", ["codec", "timbre", "model", "tokens.bin"])
def test_what_is_missing_is_named_in_one_line(
    missing: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / missing).rename(runs / "elsewhere")
    assert export(runs, tmp_path / "mine") == 2
    error = capsys.readouterr().err
    assert error.startswith("timbrel: ") and str(runs / missing) in error and error.count("\n") == 1
    assert not (tmp_path / "mine").exists()


def test_stages_of_different_trainings_are_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs / "model" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "codec_hash": "beef"}))
    assert export(runs, tmp_path / "mine") == 2
    assert "trained on other tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "damage"),
    [
        ("model", {"frame_rate": None}),
        ("model", {"ranges": {"pitch": [36, 96]}}),
        ("model", {"steps": None}),
        ("codec", {"sources": [{"licence": "MIT"}]}),
    ],
)
def test_a_damaged_description_is_told_in_one_line(
    folder: str, damage: dict[str, Any], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs / folder / f"{folder}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    assert export(runs, tmp_path / "mine") == 2
    [error] = capsys.readouterr().err.splitlines()
    assert error.startswith(f"timbrel: {runs / 'model'}: its description is damaged")


def test_the_licences_of_other_notes_are_not_stated(
    runs: Path, library_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(runs, tmp_path / "mine", f"--notes={library_dir}") == 2
    [error] = capsys.readouterr().err.splitlines()
    assert error.startswith(f"timbrel: {library_dir}: the tokens are not of these notes; name the dataset")


def test_a_codec_that_did_not_make_the_tokens_is_refused(
    runs: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = dict(tiny.codec.state_dict())
    weights["header.mean"] = weights["header.mean"] + 1.0
    save_file(weights, runs / "codec" / "codec.safetensors")
    assert export(runs, tmp_path / "mine") == 2
    assert "made by another codec" in capsys.readouterr().err


def test_the_recipe_of_the_tiny_bundle_takes_no_option_for_a_folder(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(recipe.__file__)
    monkeypatch.chdir(tmp_path)
    for option, status in (("--help", 0), ("--hlep", 2)):
        monkeypatch.setattr(sys, "argv", [script, option])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
        said = capsys.readouterr()
        assert (ended.value.code, list(tmp_path.iterdir())) == (status, []), said.err
        assert "OUT_DIR" in said.out + said.err
