"""The timbrel-notes codec: in tune by construction, streaming, trained and used from the command line."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from timbrel_training.codec.interface import Expression, codec_hash
from timbrel_training.codec.registry import load_codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.analysis import (
    Analysis,
    code_to_fundamental,
    fundamental_to_code,
    midi_to_hertz,
)
from timbrel_training.codec.timbrel_notes.objective import SpectralLoss
from timbrel_training.codec.timbrel_notes.synthesis import Oscillator
from timbrel_training.codec.timbrel_notes.train import train_codec
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.stages import STAGES
from timbrel_training.tokens.store import TokenStore

CONFIG = load_config("tiny").codec.codec


def tone(midi: float, seconds: float, sample_rate: int) -> torch.Tensor:
    """Five harmonics falling off as 1 / k: float32 [samples]."""
    time = torch.arange(round(seconds * sample_rate), dtype=torch.float64) / sample_rate
    hertz = float(midi_to_hertz(torch.tensor(midi, dtype=torch.float64)))
    return sum(0.2 / k * torch.sin(2 * torch.pi * k * hertz * time) for k in range(1, 6)).float()


@pytest.fixture(scope="module")
def codec() -> TimbrelNotes:
    """Untrained, its codebooks filled with noise."""
    torch.manual_seed(0)
    codec = TimbrelNotes(CONFIG).eval().requires_grad_(False)
    for name, buffer in codec.named_buffers():
        if name.endswith("embed"):
            buffer.normal_()
        if name.endswith("inited"):
            buffer.fill_(1)
    return codec


@pytest.mark.parametrize("midi", [36.13, 47.8, 60.0, 71.37, 84.2, 95.9])
def test_the_fundamental_is_measured_within_two_cents(midi: float) -> None:
    analysis = Analysis(TimbrelNotesConfig())
    audio = tone(midi, 1.0, 48_000)[None]
    measured = analysis.tracker(analysis.long_spectrum(audio), torch.tensor([float(round(midi))]))
    assert (measured[0, 4:34] - midi).abs().max() < 0.02


def test_fundamental_codes_are_a_few_cents_apart() -> None:
    config = TimbrelNotesConfig()
    midi = torch.arange(36.0, 96.0, 0.037)
    assert (code_to_fundamental(fundamental_to_code(midi, config), config) - midi).abs().max() <= 0.0417


def test_the_oscillator_plays_the_frequency_and_the_harmonics_asked_for() -> None:
    oscillator = Oscillator(48_000, 240, n_harmonics=8, table_size=2048)
    amplitudes = torch.zeros(1, 200, 8)
    amplitudes[:, :, 0], amplitudes[:, :, 2] = 0.5, 0.25
    hertz = torch.full((1, 200), 300.0)
    zeros = torch.zeros(1)
    start = torch.tensor([700])
    audio, *_ = oscillator(amplitudes, hertz, start, torch.zeros(1, 2049), zeros, zeros.double())
    spectrum = np.abs(np.fft.rfft(audio[0, 4800:43200].numpy())) / (38400 / 2)  # bins of 1.25 Hz
    assert np.argsort(spectrum)[-2:].tolist() == [720, 240]
    assert spectrum[240] == pytest.approx(0.5, abs=0.01)
    assert spectrum[720] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("chunks", [[1] * 23, [5, 1, 9, 8], [23]])
def test_a_stream_of_any_chunks_is_the_whole_note(codec: TimbrelNotes, chunks: list[int]) -> None:
    codes = torch.randint(0, CONFIG.codebook_size, (2, 23, CONFIG.n_codebooks))
    codes[:, :, 0] = torch.randint(100, 200, (2, 1))
    seed, cents = torch.tensor([3, -(2**62)]), torch.empty(2, 23).uniform_(-2500, 2500)
    level = torch.empty(2, 23).uniform_(-20, 6)
    whole = codec.decode(codes, seed, cents, level)
    codes = torch.cat([codes, codec.silence().expand(2, 1, -1)], dim=1)
    expression = Expression(seed, cents, level).held_on(1)
    state, pieces, start = codec.initial_state(2), [], 0
    for length in [*chunks, 1]:
        chunk = codes[:, start : start + length]
        played = Expression(seed, *(x[:, start : start + length] for x in expression[1:]))
        audio, state = codec.decode_chunk(chunk, played, state)
        pieces.append(audio)
        start += length
    streamed = torch.cat(pieces, dim=1)[:, codec.delay_samples :][:, : whole.shape[1]]
    assert whole.shape == (2, 23 * CONFIG.hop_length)
    torch.testing.assert_close(streamed, whole, atol=1e-4 * float(whole.abs().max()), rtol=0)


@pytest.mark.parametrize("fundamentals", [(175, 175), (129, 10), (10, 129)])
def test_harmonics_that_are_left_out_are_silent(codec: TimbrelNotes, fundamentals: tuple[int, int]) -> None:
    """A high note, and one that leaps, by its codes and by bends: as if all harmonics had been worked out."""
    codes = torch.randint(0, CONFIG.codebook_size, (1, 4, CONFIG.n_codebooks))
    state = codec.decoder.initial_state(1)
    for fundamental, bend in zip(fundamentals, (-1200.0, 700.0), strict=True):
        codes[:, :, 0] = fundamental
        latents, code = codec.latents(codes), codes[:, :, 0]
        bent = Expression.of(codes, cents=torch.full((1, 4), bend))
        audio, after = codec.decoder(latents, code, bent, state)
        controls, begun = codec.decoder.controls(latents, code, bent, state)
        every, _ = codec.decoder.play(controls, bent.seed, begun)
        assert controls.log_amplitudes.shape[2] == CONFIG.n_harmonics
        torch.testing.assert_close(audio, every, atol=1e-6 * float(every.abs().max()), rtol=0)
        state = after


def test_codes_have_the_promised_shape_and_range(codec: TimbrelNotes) -> None:
    codes = codec.encode(tone(60, 0.5, CONFIG.sample_rate)[None, :-7])
    assert codes.shape == (1, codec.n_frames(codec.sample_rate // 2 - 7), CONFIG.n_codebooks)
    assert int(codes.min()) >= 0 and int(codes.max()) < CONFIG.codebook_size
    assert codec.latents(codes).shape == (1, codes.shape[1], CONFIG.latent_dim)


def test_a_decoded_tone_keeps_the_pitch_that_its_code_says(codec: TimbrelNotes) -> None:
    codes = codec.encode(tone(69, 1.0, CONFIG.sample_rate)[None], torch.tensor([69.0]))
    heard = code_to_fundamental(codes[0, 5:-5, 0], CONFIG)
    assert (heard - 69.0).abs().max() <= 0.5 / CONFIG.fundamental_steps_per_semitone


def test_the_spectral_loss_ignores_phase_and_grows_with_difference() -> None:
    loss = SpectralLoss(24_000).eval()
    peak = torch.tensor([0.4])
    time = torch.arange(24_000) / 24_000
    here, there = (0.4 * torch.sin(2 * torch.pi * 440 * time + phase)[None] for phase in (0.0, 1.0))
    same, shifted = float(loss(here, here, peak)), float(loss(there, here, peak))
    quieter = float(loss(0.5 * here, here, peak))
    assert same < 1e-3 < shifted + 1e-3 < quieter
    assert shifted < 0.3 * quieter


def run(stage: str, *words: object) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    return int(STAGES[stage].run(parser.parse_args([str(word) for word in words])))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "notes"
    assert run("notes", "--config", "tiny", "--source", "synthetic", "--jobs", 1, "--out", path) == 0
    return path


def test_notes_to_codec_to_tokens_from_the_command_line(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codec_dir, store_path = tmp_path / "codec", tmp_path / "tokens.bin"
    assert run("codec", "--config", "tiny", "--notes", library, "--out", codec_dir) == 0
    assert "spectral" in capsys.readouterr().out
    assert run("tokens", "--notes", library, "--codec", codec_dir, "--out", store_path) == 0
    store, notes = TokenStore(store_path), NoteDataset(library)
    assert len(store) == len(notes)
    assert store.header.codec_hash == codec_hash(codec_dir)
    assert store.header.n_codebooks == CONFIG.n_codebooks
    with pytest.raises(ValueError, match="exists already"):
        run("tokens", "--notes", library, "--codec", codec_dir, "--out", store_path)


def test_an_unfinished_codec_is_named(library: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="train it first"):
        run("tokens", "--notes", library, "--codec", tmp_path, "--out", tmp_path / "tokens.bin")


def test_training_stopped_and_resumed_is_training_in_one_go(library: Path, tmp_path: Path) -> None:
    config = load_config("tiny").codec
    notes = NoteDataset(library)
    loop = dataclasses.replace(config.loop, checkpoint_every=2, max_minutes=1e-6)
    stopping = dataclasses.replace(config, loop=loop)
    assert train_codec(config, notes, tmp_path / "whole") is not None
    for _ in range(config.loop.n_steps):  # each sitting ends after its first step
        finished = train_codec(stopping, notes, tmp_path / "parts")
    assert finished is not None
    whole, parts = (load_codec(tmp_path / name).state_dict() for name in ("whole", "parts"))
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name
