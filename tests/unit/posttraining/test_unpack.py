"""A bundle becomes the folders of the stages that made it, and these are taken as training leaves them."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_variants import holding
from safetensors.numpy import load_file, save_file
from training_notes import NamedSource

from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CODEC_WEIGHTS, MANIFEST, MODEL_WEIGHTS, TIMBRE_WEIGHTS
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_export.bundle_folder import lengthen_holds
from timbrel_export.errors import ExportError
from timbrel_posttraining import unpack
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.checkpoint import load_description, save_weights
from timbrel_training.codec.interface import WEIGHTS_NAME, codec_hash, unpacked_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.codec.timbrel_notes.note_parameters import SIZES
from timbrel_training.codec.timbrel_notes.train import train_codec
from timbrel_training.codec.tokenize import tokenize_dataset
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError
from timbrel_training.note_training.train import MODEL, load_model, train_notes
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import SplitRule
from timbrel_training.timbre.map import ENCODER, read_chart, read_map
from timbrel_training.timbre.references import read_references
from timbrel_training.timbre.train import load_encoder
from timbrel_training.tokens.table import TokenTable


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    unpack.configure(parser)
    return unpack.run(parser.parse_args([str(each) for each in arguments]))


def test_the_folders_hold_what_the_bundle_does(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--bundle", tiny_bundle, "--out", tmp_path) == 0
    assert "encoder and map of 4 instruments" in capsys.readouterr().out
    model, codec, encoder = (
        load_model(tmp_path / "model"),
        load_codec(tmp_path / "codec"),
        load_encoder(tmp_path / "timbre"),
    )
    for module, file in ((model, MODEL_WEIGHTS), (codec, CODEC_WEIGHTS), (encoder, TIMBRE_WEIGHTS)):
        shipped = load_file(tiny_bundle / file)
        state = {name: value.half().numpy() for name, value in module.state_dict().items()}
        if module is codec:
            # The bundle is of before stiffness and depths were parameters: what says them is new, and 0.
            last = f"header.decoder.{len(codec.header.decoder) - 1}"
            for name in ("header.mean", f"{last}.weight", f"{last}.bias"):
                n = len(shipped[name])
                assert not state[name][n:].any()
                state[name] = state[name][:n]
            first, n, later = "header.encoder.0.weight", len(state["header.mean"]), sum(SIZES[-2:])
            new = [*range(n, n + later), *range(2 * n + later, 2 * (n + later))]
            state[first] = np.delete(state[first], new, axis=1)
        for name, each in shipped.items():
            assert np.array_equal(state[name].astype(each.dtype), each), name
    bundle = Bundle.open(tiny_bundle)
    assert [p.instrument for p in read_chart(tmp_path / "timbre").points] == [
        p.instrument for p in bundle.timbre_map.points
    ]
    assert len(read_references(tmp_path / "timbre").embeddings) == 4
    audio = 0.1 * np.sin(np.arange(24_000) / 17).astype(np.float32)
    heard = TimbreEncoder(bundle, n_threads=1).hear(audio, 48_000).heard_at
    point, _ = encoder(torch.from_numpy(audio)[None], torch.tensor([len(audio)]))
    np.testing.assert_allclose(point[0].detach().numpy(), heard, atol=0.02)  # `hear` trims and scales


def test_an_export_of_the_folders_writes_holds_as_long_as_the_bundle(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    held = holding(tiny_bundle, tmp_path / "bundle", hold_frames=44)
    assert run("--bundle", held, "--out", tmp_path / "on") == 0
    before, again = Bundle.open(held).manifest, pb.Manifest()
    again.CopyFrom(before)
    again.ranges.seconds_max = load_description(tmp_path / "on" / "model", MODEL)["ranges"]["held_seconds"][1]
    lengthen_holds(again)
    assert again.model.hold_frames == before.model.hold_frames


def test_the_folders_state_what_the_bundle_learnt_from(tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    manifest = load_manifest(tmp_path / "bundle" / MANIFEST)
    manifest.training.sources.add(name="EnCodec's weights", licence="CC-BY-NC-4.0")
    save_manifest(manifest, tmp_path / "bundle" / MANIFEST)
    assert run("--bundle", tmp_path / "bundle", "--out", tmp_path) == 0
    for folder in ("codec", "model"):
        stated = load_description(tmp_path / folder, folder)["sources"]
        assert [pb.DataSource(**source) for source in stated] == list(manifest.training.sources)


def test_the_config_has_the_sizes_of_model_and_codec_and_is_kept_once_it_was_edited(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--bundle", tiny_bundle, "--out", tmp_path) == 0
    file = tmp_path / "config.toml"
    config = load_config(str(file))
    assert config.codec.codec == load_codec(tmp_path / "codec").config
    assert config.model == load_model(tmp_path / "model").config
    edited = f"{file.read_text()}\n[note_training]\nbatch_steps = 100\n"
    file.write_text(edited)
    capsys.readouterr()
    assert run("--bundle", tiny_bundle, "--out", tmp_path) == 0
    assert file.read_text() == edited and "config.toml   kept as it was" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("codec_is", ["as it is", "trained on", "trained on from what was exported"])
def test_training_goes_on_from_the_folders(tiny_bundle: Path, tmp_path: Path, codec_is: str) -> None:
    few = NamedSource(pitches=range(57, 61), n_draws=1, sample_rate=48_000, max_held=0.5)
    render_dataset(few, library := tmp_path / "notes", jobs=1, rule=SplitRule(cell_fraction=0.25))
    notes, tokens = NoteDataset(library), tmp_path / "tokens.bin"
    assert run("--bundle", tiny_bundle, "--out", tmp_path) == 0
    folder = tmp_path / "codec"
    if codec_is == "trained on from what was exported":
        exported = load_codec(folder)
        with torch.no_grad():
            for weight in exported.parameters():
                weight *= 1 + 1e-5  # which 16 bits do not tell
        save_weights(tmp_path / "exported", WEIGHTS_NAME, exported, load_description(folder, WEIGHTS_NAME))
        folder = tmp_path / "exported"
        assert codec_hash(folder) != unpacked_hash(folder) == codec_hash(tmp_path / "codec")
    if codec_is != "as it is":
        few_steps = ["codec.loop.n_steps=1", "codec.loop.n_warmup=0", "codec.batch_size=2", "codec.jobs=1"]
        further = load_config(str(tmp_path / "config.toml"), [f"codec.init={folder}", *few_steps])
        folder = tmp_path / "codec-further"
        assert train_codec(further.codec, notes, folder) is not None
    codec = load_codec(folder)
    codec.search_steps = 1  # what the codes are does not matter here
    tokenize_dataset(notes, codec, codec_hash(folder), tokens, 1, folder)
    assert run("--bundle", tiny_bundle, "--out", tmp_path, "--tokens", tokens, "--notes", library) == 0
    _, points = read_map(tmp_path / "timbre")
    assert len(points) == len(notes) and np.linalg.norm(points, axis=1).max() <= 1.0
    config = load_config(str(tmp_path / "config.toml"), ["note_training.loop.n_steps=1"])
    init = tmp_path / "model"
    table = TokenTable.read(tokens)
    loop = train_notes(
        config.note_training,
        config.model,
        table,
        tmp_path / "timbre",
        tmp_path / "on",
        torch.device("cpu"),
        init=init,
    )
    assert loop.finished and (tmp_path / "on" / "model.safetensors").is_file()


def test_weights_of_another_training_are_not_overwritten(tiny_bundle: Path, tmp_path: Path) -> None:
    """The same bundle may be unpacked again."""
    for _ in range(2):
        assert run("--bundle", tiny_bundle, "--out", tmp_path) == 0
    for name in ("codec/codec", "model/best"):
        trained = tmp_path / f"{name}.safetensors"
        save_file({name: value + 1 for name, value in load_file(trained).items()}, tmp_path / "trained")
        (tmp_path / "trained").replace(trained)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
        with pytest.raises(ExportError, match=rf"{trained.name}: holds other weights than the bundle's"):
            run("--bundle", tiny_bundle, "--out", tmp_path)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before
        trained.unlink()


def test_what_cannot_be_unpacked_is_one_line(tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="--tokens and --notes: both or neither"):
        run("--bundle", tiny_bundle, "--out", tmp_path / "out", "--notes", tmp_path)
    weights = tmp_path / TIMBRE_WEIGHTS
    save_file(load_file(tiny_bundle / TIMBRE_WEIGHTS), weights)  # as older ones, without its config
    older = type("Older", (), {"file": lambda _, name: weights})()
    with pytest.raises(CheckpointError, match=r"no timbre encoder that this timbrel can make again"):
        unpack._timbre_encoder(older)
    about = {"encoder": {"n_layers": 3, "width": 128}, "sample_rate": 48_000, "n_instruments": 4}
    save_file(load_file(weights), weights, {"config": json.dumps(about)})  # before it looked at pitch, too
    with pytest.raises(CheckpointError, match="its layers are of an older timbrel; unpack with the one that"):
        unpack._timbre_encoder(older)


@pytest.mark.slow
def test_a_bundle_takes_another_timbre_encoder_and_plays_as_before(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after `timbrel train hearing`: of the bundle's files three are new, and one source is named."""
    unpack.unpack(tiny_bundle, tmp_path / "on")
    timbre, out = tmp_path / "on" / "timbre", tmp_path / "bundle"
    encoder = load_encoder(timbre)
    with torch.no_grad():
        encoder.directions.copy_(
            encoder.directions.flip(0)
        )  # every instrument is told by another's direction
    heard = {"name": "folder orchestra", "licence": "CC0-1.0", "n_instruments": 2, "n_notes": 9}
    about = {**load_description(timbre, ENCODER), "sources": [heard]}
    save_weights(timbre, ENCODER, encoder, about)
    export = ["export", f"--bundle={tiny_bundle}", f"--timbre={timbre}", f"--out={out}"]
    assert main(export) == 0
    capsys.readouterr()

    old, new = Bundle.open(tiny_bundle), Bundle.open(out)
    hashes = [{file.name: file.sha256 for file in bundle.manifest.files} for bundle in (old, new)]
    changed = {name for name in hashes[0] if hashes[0][name] != hashes[1].get(name)}
    assert changed == {TIMBRE_WEIGHTS} and hashes[0].keys() == hashes[1].keys()
    assert new.manifest.bundle_hash != old.manifest.bundle_hash and new.manifest.name == old.manifest.name
    assert new.manifest.training.sources[-1].name == heard["name"]
    assert len(new.manifest.training.sources) == len(old.manifest.training.sources) + 1
    for section in ("codec", "model", "ranges", "parity"):
        assert getattr(new.manifest, section) == getattr(old.manifest, section)
    time = np.arange(48_000) / 48_000
    tone = (np.sin(2 * np.pi * 220 * time) * np.exp(-3 * time)).astype(np.float32)
    found = [TimbreEncoder(bundle).hear(tone, 48_000) for bundle in (old, new)]
    assert np.allclose(found[0].embedding, found[1].embedding, atol=1e-3)
    assert np.hypot(*np.subtract(found[0].heard_at, found[1].heard_at)) > 0.1

    more = {**about, "sources": [{**heard, "n_notes": 30}]}  # it went on with more of the same
    save_weights(timbre, ENCODER, encoder, more)
    assert main([export[0], f"--bundle={out}", export[2], f"--out={tmp_path / 'more'}"]) == 0
    capsys.readouterr()
    known, went_on = new.manifest.training.sources, Bundle.open(tmp_path / "more").manifest.training.sources
    assert (len(went_on), went_on[-1].n_notes, went_on[:-1]) == (len(known), 30, known[:-1])

    for wrong, fault in (
        ([*export, "--model=x"], "in their place --bundle"),
        ([each for each in export if "--bundle" not in each], "in their place --bundle"),
    ):
        assert main(wrong) == 2 and fault in capsys.readouterr().err
    save_weights(timbre, ENCODER, encoder, {**about, "sources": [{"licence": "CC0-1.0"}]})
    assert main([*export[:-1], f"--out={tmp_path / 'none'}"]) == 2
    assert "damaged list of sources" in capsys.readouterr().err and not (tmp_path / "none").exists()
    chart = json.loads((timbre / "timbre_map.json").read_text())
    chart["points"][0]["x"] += 0.1
    (timbre / "timbre_map.json").write_text(json.dumps(chart))
    assert main([*export[:-1], f"--out={tmp_path / 'none'}"]) == 2
    assert "its map is not that of" in capsys.readouterr().err and not (tmp_path / "none").exists()
