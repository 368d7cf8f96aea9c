"""Refining a codec's decoder: a better sound from the same codes."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from timbrel_training.codec.interface import Expression, codec_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes
from timbrel_training.codec.timbrel_notes.refine import CodedSegments, refine_codec
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.stages import STAGES
from timbrel_training.tokens.store import TokenStore

CONFIG = load_config("tiny").refine


class Stage(NamedTuple):
    """What refining starts from."""

    notes: Path
    codec: Path
    tokens: Path


def run(stage: str, *words: object) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    return int(STAGES[stage].run(parser.parse_args([str(word) for word in words])))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("stage")
    notes, codec, tokens = folder / "notes", folder / "codec", folder / "tokens.bin"
    assert run("notes", "--config", "tiny", "--source", "synthetic", "--jobs", 1, "--out", notes) == 0
    assert run("codec", "--config", "tiny", "--notes", notes, "--out", codec) == 0
    assert run("tokens", "--notes", notes, "--codec", codec, "--out", tokens) == 0
    return Stage(notes, codec, tokens)


def of(stage: Stage, codec: Path) -> tuple[object, ...]:
    return ("--config", "tiny", "--codec", codec, "--notes", stage.notes, "--tokens", stage.tokens)


def distance(codec: TimbrelNotes, stage: Stage) -> float:
    """Mean difference of log spectra of what the codec makes of the notes' codes, in nepers."""
    library, tokens = NoteDataset(stage.notes), TokenStore(stage.tokens)
    found = []
    for number in range(0, len(library), max(1, len(library) // 8)):
        codes = torch.from_numpy(tokens.note(number).astype(np.int64))[None]
        made = codec.decode(codes)[0]
        source = torch.from_numpy(library.audio(number))[: len(made)]
        window = torch.hann_window(1024)
        logs = [
            torch.log(torch.stft(sound[: len(source)], 1024, window=window, return_complex=True).abs() + 1e-2)
            for sound in (made, source)
        ]
        found.append(float((logs[0] - logs[1]).abs().mean()))
    return float(np.mean(found))


def test_the_same_codes_sound_more_like_the_notes(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ("--set", "refine.loop.n_steps=40", "--set", "refine.loop.ema_decay=0.8")
    assert run("refine", *of(stage, stage.codec), *steps, "--out", tmp_path / "refined") == 0
    assert "spectral" in capsys.readouterr().out
    before, after = load_codec(stage.codec), load_codec(tmp_path / "refined")
    assert distance(after, stage) < 0.9 * distance(before, stage)
    for name, value in before.state_dict().items():
        same = torch.equal(value, after.state_dict()[name])
        assert same or name.startswith("decoder."), name
    assert (
        codec_hash(tmp_path / "refined")
        == codec_hash(stage.codec)
        == TokenStore(stage.tokens).header.codec_hash
    )
    again = run("refine", *of(stage, tmp_path / "refined"), "--out", tmp_path / "twice")
    assert again == 0 and codec_hash(tmp_path / "twice") == codec_hash(stage.codec)


def test_beside_a_discriminator(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told to judge magnitudes; both sides are trained, and the codec is saved without it."""
    settings = ("--set", "refine.discriminator.phases=false", "--set", "refine.discriminator.channels=4")
    assert run("refine", *of(stage, stage.codec), *settings, "--out", tmp_path / "refined") == 0
    assert {"discriminator", "adversarial", "matching"} <= set(
        capsys.readouterr().out.replace(":", " ").split()
    )
    before, after = load_codec(stage.codec).state_dict(), load_codec(tmp_path / "refined").state_dict()
    assert before.keys() == after.keys()
    assert not torch.equal(before["decoder.inlet.weight"], after["decoder.inlet.weight"])
    state = torch.load(tmp_path / "refined" / "checkpoint.pt", weights_only=True)
    inlet = state["model"]["discriminator.scales.0.inlet.parametrizations.weight.original1"]
    assert inlet.shape == (4, 1, 3, 9), "one channel in: no phases"
    means = [each["exp_avg"] for each in state["optimizer"]["state"].values()]
    (moved,) = {bool(mean.any()) for mean in means if mean.shape == inlet.shape}
    assert moved, "its weights had gradients"


def test_a_window_that_no_segment_fills_is_refused(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="windows: 16384, expected less than"):
        run(
            "refine",
            *of(stage, stage.codec),
            "--set",
            "refine.discriminator.windows=[16384]",
            "--out",
            tmp_path / "out",
        )
    assert not (tmp_path / "out" / "codec.json").exists()


def test_segments_are_the_codes_and_the_sound_of_one_place(stage: Stage) -> None:
    """What the codec makes of them is what it makes of the whole note there."""
    codec, library, tokens = load_codec(stage.codec), NoteDataset(stage.notes), TokenStore(stage.tokens)
    config = dataclasses.replace(CONFIG, onset_share=0.0, segment_frames=8)
    note = int(np.argmax(tokens.n_frames))
    batch = CodedSegments(library, tokens, np.array([note]), config, codec).draw(3, torch.device("cpu"))
    whole = tokens.note(note).astype(np.int64)
    n_context = batch.codes.shape[1] - config.segment_frames
    piece = batch.codes[0].numpy()
    places = [at for at in range(len(whole) - len(piece) + 1) if (whole[at : at + len(piece)] == piece).all()]
    sounds = [library.audio(note, (at + n_context) * codec.hop_length, batch.audio.shape[1]) for at in places]
    assert any(np.array_equal(sound, batch.audio[0].numpy()) for sound in sounds)
    decoder, fundamental = codec.decoder, batch.codes[:, :, 0]
    plain, start = Expression.of(batch.codes), decoder.initial_state(len(batch.codes))
    alone, _ = decoder.controls(codec.latents(batch.codes), fundamental, plain, start)
    every = torch.from_numpy(whole)[None]
    plain, start = Expression.of(every), decoder.initial_state(1)
    within, _ = decoder.controls(codec.latents(every), every[:, :, 0], plain, start)
    n_points = config.segment_frames * codec.config.n_subframes
    end = (places[0] + len(piece)) * codec.config.n_subframes
    expected = within.log_amplitudes[0, end - n_points : end]
    assert torch.allclose(alone.log_amplitudes[0, -n_points:], expected, atol=1e-4)


def test_stopped_and_resumed_is_in_one_go(stage: Stage, tmp_path: Path) -> None:
    notes, tokens = NoteDataset(stage.notes), TokenStore(stage.tokens)
    loop = dataclasses.replace(CONFIG.loop, checkpoint_every=2, max_minutes=1e-6)
    stopping = dataclasses.replace(CONFIG, loop=loop)
    assert refine_codec(CONFIG, stage.codec, notes, tokens, tmp_path / "whole") is not None
    finished = None
    for _ in range(CONFIG.loop.n_steps):  # each sitting ends after its first step
        assert finished is None
        finished = refine_codec(stopping, stage.codec, notes, tokens, tmp_path / "parts")
    assert finished is not None
    whole, parts = (load_codec(tmp_path / name).state_dict() for name in ("whole", "parts"))
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name


def test_codes_of_another_codec_or_of_other_notes_are_refused(stage: Stage, tmp_path: Path) -> None:
    other = tmp_path / "other"
    words = ("--config", "tiny", "--set", "codec.loop.seed=1", "--notes", stage.notes, "--out", other)
    assert run("codec", *words) == 0
    with pytest.raises(CheckpointError, match="tokenise the notes with this one"):
        run("refine", *of(stage, other), "--out", tmp_path / "out")
    fewer = tmp_path / "fewer"
    draws = ("--set", "notes.n_draws=1")
    synthetic = ("--config", "tiny", "--source", "synthetic", "--jobs", 1, "--out", fewer)
    assert run("notes", *synthetic, *draws) == 0
    with pytest.raises(CheckpointError, match="tokenise them"):
        run("refine", *of(stage._replace(notes=fewer), stage.codec), "--out", tmp_path / "out")
    assert len(NoteDataset(fewer).of_split(Split.TRAIN)) > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("refine.batch_size", 0),
        ("refine.segment_frames", 7),
        ("refine.validation_batches", 0),
        ("refine.onset_share", 2.5),
        ("refine.discriminator.channels", 0),
        ("refine.discriminator.piece_seconds", 0.0),
        ("codec.batch_size", 0),
        ("codec.segment_frames", 3),
        ("codec.dropout_share", -0.5),
        ("timbre.batch_size", 1),
    ],
)
def test_a_config_that_cannot_be_trained_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field.rsplit('.', 1)[1]}: {value}, expected"):
        load_config("tiny", [f"{field}={value}"])


def test_windows_that_are_too_short_are_refused() -> None:
    with pytest.raises(ConfigError, match="windows"):
        load_config("tiny", ["refine.discriminator.windows=[512, 32]"])
