"""`timbrel train headers`: what says headers and what plays them learn together, the rest stays."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simple_notes import SyntheticSource

from timbrel_bundle import request_fields
from timbrel_export.errors import ExportError
from timbrel_export.trained import load_trained
from timbrel_training.checkpoint import load_description
from timbrel_training.codec.interface import codec_hash, codes_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.phase_alignment import ALIGNED, SCATTERED
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError
from timbrel_training.note_training import header_fitting, headers
from timbrel_training.note_training.header_fitting import HeaderFitting, HeaderTrainingConfig
from timbrel_training.note_training.headers import HeaderFolders, train_headers
from timbrel_training.note_training.train import MAP_HASH, MODEL, NOTES_HASH, load_model
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.stages import STAGES
from timbrel_training.timbre import layout
from timbrel_training.timbre.map import TimbreMap, read_chart, write_chart
from timbrel_training.tokens.store import PREFIX, ROW, aligned

SMALL = (
    *("codec.loop.n_steps=40", "codec.codec.n_templates=4", "codec.codec.header.width=24"),
    *("codec.batch_size=8", "codec.jobs=1", "headers.loop.n_steps=60", "headers.loop.learning_rate=3e-3"),
)


def run(stage: str, *arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    sets = (
        []
        if stage == "tokens"
        else ["--config", "tiny", *(part for each in SMALL for part in ("--set", each))]
    )
    return STAGES[stage].run(parser.parse_args([*sets, *map(str, arguments)]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> HeaderFolders:
    """All stages before, at toy size."""
    root = tmp_path_factory.mktemp("stages")
    notes, tokens, codec, timbre, model = (
        root / name for name in ("notes", "tokens", "codec", "timbre", "model")
    )
    source = SyntheticSource(pitches=range(57, 61), n_draws=3, sample_rate=48_000, max_held=0.6)
    render_dataset(source, notes, jobs=1, rule=SplitRule(cell_fraction=0.25))
    assert run("codec", "--notes", notes, "--out", codec) == 0
    assert run("tokens", "--notes", notes, "--codec", codec, "--out", tokens, "--jobs", "1") == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "N_STEPS", 100)  # where instruments lie does not matter here
        assert run("timbre", "--tokens", tokens, "--notes", notes, "--out", timbre) == 0
    assert run("model", "--tokens", tokens, "--timbre", timbre, "--out", model) == 0
    return HeaderFolders(notes, tokens, codec, timbre, model)


def arguments(folders: HeaderFolders, out: Path) -> list[str | Path]:
    given = [part for name, path in vars(folders).items() for part in (f"--{name}", path)]
    return [*given, "--out", out]


@pytest.fixture(scope="module")
def fitted(folders: HeaderFolders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "headers"
    assert run("headers", *arguments(folders, out)) == 0
    return out


def test_a_step_on_another_device_has_all_of_it_there(
    folders: HeaderFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On "meta", whose tensors hold nothing but go with no others: there need not be a GPU."""

    class OneStep:
        def __init__(
            self, _config: object, _model: object, loss_fn: Any, batch_fn: Any, *_: object, **__: object
        ) -> None:
            self._loss_fn, self._batch_fn = loss_fn, batch_fn

        def run(self) -> None:
            loss, _ = self._loss_fn(self._batch_fn(0))
            raise StopIteration(loss.device.type)

    monkeypatch.setattr(headers, "Loop", OneStep)
    config = load_config("tiny", SMALL)
    with pytest.raises(StopIteration, match="meta"):
        train_headers(config.headers, config.note_training, folders, tmp_path, torch.device("meta"))


def test_headers_are_judged_by_notes_of_all_instruments(
    folders: HeaderFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Judged:
        def __init__(self, *_: object, validate: Any, **__: object) -> None:
            self.fitter = validate.__self__

        def run(self) -> None:
            raise StopIteration(self.fitter.notes.notes[self.fitter.held_out])

    dataset = NoteDataset(folders.notes)
    held_out = dataset.of_split(Split.HELD_OUT_CELL)
    instruments = dataset.instrument[held_out]
    monkeypatch.setattr(header_fitting, "VALIDATION_NOTES", int((instruments == instruments[0]).sum()))
    monkeypatch.setattr(headers, "Loop", Judged)
    config = load_config("tiny", SMALL)
    with pytest.raises(StopIteration) as stopped:
        train_headers(config.headers, config.note_training, folders, tmp_path, torch.device("cpu"))
    assert len(np.unique(dataset.instrument[stopped.value.value])) > 1


def test_headers_are_drawn_as_servers_draw_them() -> None:
    asked = request_fields.DEFAULT_SAMPLING
    drawn = header_fitting.DRAWN
    assert drawn.temperature == pytest.approx(request_fields.HEADER_TEMPERATURE * asked.temperature)
    assert (drawn.top_k, drawn.top_p) == (asked.top_k, asked.top_p)


def test_headers_come_nearer_to_the_notes(folders: HeaderFolders, fitted: Path) -> None:
    config = load_config("tiny", SMALL)
    loop = train_headers(config.headers, config.note_training, folders, fitted, torch.device("cpu"))
    assert loop is not None and loop.finished
    assert loop.history[-1]["written"] < 0.9 * loop.history[0]["written"]
    assert loop.history[-1]["coded"] < 1.1 * loop.history[0]["coded"]


def test_the_movements_said_are_the_nearer_the_more_they_count(
    folders: HeaderFolders, tmp_path: Path
) -> None:
    found = []
    for weight in (0, 40):
        sets = ("headers.alignment_weight=0", f"headers.movement_weight={weight}")
        config = load_config("tiny", (*SMALL, *sets))
        out = tmp_path / str(weight)
        loop = train_headers(config.headers, config.note_training, folders, out, torch.device("cpu"))
        assert loop is not None
        found.append(loop.history[-1]["movement"])
    assert found[1] < 0.95 * found[0]


def test_an_alignment_of_phases_counts_with_whatever_movement(folders: HeaderFolders) -> None:
    codec, model = load_codec(folders.codec), load_model(folders.model)
    assert isinstance(codec, TimbrelNotes)
    fitting = HeaderFitting(model, codec, HeaderTrainingConfig())
    slot, n_templates = fitting.n_codes + 1, codec.config.n_templates
    logits = torch.zeros(1, slot + 1, codec.codebook_size + 1)
    logits[0, slot, n_templates * ALIGNED + 1] = 20.0
    said = torch.zeros(1, slot + 1, dtype=torch.int64)
    for alignment, movement, is_alike in ((ALIGNED, 1, True), (ALIGNED, 3, True), (SCATTERED, 1, False)):
        said[0, slot] = n_templates * alignment + movement
        assert (float(fitting.alignment_nats(logits, said)) < 0.1) == is_alike


def test_only_what_says_and_plays_headers_has_changed(folders: HeaderFolders, fitted: Path) -> None:
    before, after = (load_model(each).state_dict() for each in (folders.model, fitted / "model"))
    assert {name.split(".")[0] for name in before if not before[name].equal(after[name])} == {"header"}
    codecs = [load_codec(each) for each in (folders.codec, fitted / "codec")]
    before, after = (each.state_dict() for each in codecs)
    changed = {".".join(name.split(".")[:2]) for name in before if not before[name].equal(after[name])}
    assert changed == {"header.decoder"}
    library = NoteDataset(folders.notes)
    note = torch.from_numpy(library.audio(0))[None], torch.tensor([float(library.pitch[0])])
    held = torch.tensor([float(library.held_seconds[0])])
    for codec in codecs:
        codec.search_steps = 0  # which looks for what the decoder plays
    first, second = (each.encode(*note, held) for each in codecs if isinstance(each, TimbrelNotes))
    assert first.equal(second)


def test_the_result_is_exported_with_the_same_tokens(
    folders: HeaderFolders, fitted: Path, tmp_path: Path
) -> None:
    codec = fitted / "codec"
    assert codec_hash(codec) != codec_hash(folders.codec) == codes_hash(codec)
    trained = load_trained(fitted / "model", folders.timbre, codec, folders.tokens, folders.notes, 2)
    assert len(trained.sample_notes) == 2
    other = tmp_path / "codec"
    shutil.copytree(folders.codec, other)
    (other / "codec.safetensors").write_bytes((codec / "codec.safetensors").read_bytes())
    with pytest.raises(ExportError, match="made by another codec"):
        load_trained(fitted / "model", folders.timbre, other, folders.tokens, folders.notes, 2)
    with pytest.raises(ExportError, match="`timbrel train headers` fitted it to another codec than"):
        load_trained(fitted / "model", folders.timbre, folders.codec, folders.tokens, folders.notes, 2)


def test_tokens_that_the_fitted_codec_makes_are_of_the_codes_that_its_model_writes(
    folders: HeaderFolders, fitted: Path, tmp_path: Path
) -> None:
    tokens, codec = tmp_path / "tokens", fitted / "codec"
    assert run("tokens", "--notes", folders.notes, "--codec", codec, "--out", tokens, "--jobs", "1") == 0
    load_trained(fitted / "model", folders.timbre, codec, tokens, folders.notes, 2)
    further = ["--tokens", tokens, "--timbre", folders.timbre, "--init", fitted / "model"]
    once = ["--set", "note_training.loop.n_steps=1"]
    assert run("model", *further, "--out", tmp_path / "model", *once) == 0


def test_a_model_of_another_map_or_of_other_notes_is_refused(
    folders: HeaderFolders, fitted: Path, tmp_path: Path
) -> None:
    def export(
        timbre: Path = folders.timbre, model: Path = fitted / "model", tokens: Path = folders.tokens
    ) -> None:
        load_trained(model, timbre, fitted / "codec", tokens, folders.notes, 2)

    turned, other, tokens, older = (tmp_path / name for name in ("turned", "other", "tokens", "older"))
    shutil.copytree(folders.timbre, turned)
    chart = read_chart(turned)
    write_chart(turned, TimbreMap(tuple(replace(point, x=-point.x) for point in chart.points)))
    for retrain in (
        lambda: export(turned),
        lambda: run("headers", *arguments(replace(folders, timbre=turned), other)),
    ):
        with pytest.raises(CheckpointError, match=r"trained on another map than that in .*turned"):
            retrain()
    raw = bytearray(folders.tokens.read_bytes())
    first_row = aligned(PREFIX.size + PREFIX.unpack(raw[: PREFIX.size])[2])
    raw[first_row + ROW.fields["velocity"][1]] ^= 1
    tokens.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"trained on the tokens of other notes than .*tokens"):
        export(tokens=tokens)
    assert not other.exists()
    shutil.copytree(fitted / "model", older)
    described = load_description(older, MODEL)
    described = {name: each for name, each in described.items() if name not in (MAP_HASH, NOTES_HASH)}
    (older / "model.json").write_text(json.dumps(described))
    export(turned, older)  # as before it was stated, and as `unpack` makes it


def test_headers_go_on_as_they_began(folders: HeaderFolders, tmp_path: Path) -> None:
    begin = [*arguments(folders, tmp_path / "out"), "--set", "headers.loop.max_minutes=1e-9"]
    assert run("headers", *begin) == 3
    for field in ("centroid_share", "noise_fraction"):
        with pytest.raises(CheckpointError, match=rf"{field}: .* there, 0\.125 here"):
            run("headers", *begin, "--set", f"note_training.{field}=0.125")


def test_a_run_that_ended_is_not_run_again(folders: HeaderFolders, fitted: Path) -> None:
    before = codec_hash(fitted / "codec")
    assert run("headers", *arguments(folders, fitted)) == 0
    assert codec_hash(fitted / "codec") == before


def test_folders_that_do_not_belong_together_are_one_clear_line(
    folders: HeaderFolders, tmp_path: Path
) -> None:
    bare = tmp_path / "codec"
    shutil.copytree(folders.codec, bare, ignore=shutil.ignore_patterns("analysis"))
    with pytest.raises(CheckpointError, match="holds no measurements of"):
        run("headers", *arguments(HeaderFolders(**{**vars(folders), "codec": bare}), tmp_path / "out"))
    with pytest.raises(CheckpointError, match="train it first"):
        run("headers", *arguments(HeaderFolders(**{**vars(folders), "model": tmp_path}), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_where_no_network_says_headers_all_stays(
    folders: HeaderFolders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out"
    wanted = ["--tokens", folders.tokens, "--timbre", folders.timbre, "--out", plain]
    assert run("model", *wanted, "--set", "model.header_width=0") == 0
    assert run("headers", *arguments(HeaderFolders(**{**vars(folders), "model": plain}), out)) == 0
    assert "nothing to fit" in capsys.readouterr().out
    before, after = (load_model(each).state_dict() for each in (plain, out / "model"))
    assert all(before[name].equal(after[name]) for name in before)
