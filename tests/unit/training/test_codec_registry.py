"""The registry of codecs: what config, folder and stages make of a codec that is not timbrel-notes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from timbrel_export.codec_graphs import describe_codec
from timbrel_training.checkpoint import save_weights
from timbrel_training.codec import registry
from timbrel_training.codec.encodec import EncodecCodec, EncodecConfig
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign, Expression
from timbrel_training.codec.timbrel_notes import TimbrelNotes
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError, ConfigError, TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.stages import STAGES
from timbrel_training.tokens.store import TokenStore


@dataclass(frozen=True)
class LevelConfig:
    n_levels: int = 32
    device: str = "auto"


class LevelCodec(Codec):
    """One codebook, whose codes are a frame's loudness."""

    id = "level"
    sample_rate = 24_000
    hop_length = 480
    n_codebooks = 1

    def __init__(self, n_levels: int) -> None:
        super().__init__()
        self.codebook_size = n_levels
        self.register_buffer("levels", torch.linspace(0.0, 1.0, n_levels))

    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        n_frames = self.n_frames(audio.shape[1])
        padded = torch.nn.functional.pad(audio, (0, n_frames * self.hop_length - audio.shape[1]))
        peaks = padded.unflatten(1, (n_frames, self.hop_length)).abs().amax(dim=2)
        return (peaks * (self.codebook_size - 1)).long().clamp(max=self.codebook_size - 1)[:, :, None]

    def decode(self, codes: Tensor, *_: Tensor | None, **__: Tensor | None) -> Tensor:
        return self.levels[codes[:, :, 0]].repeat_interleave(self.hop_length, dim=1)

    def silence(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64)


def make_level(config: LevelConfig, notes: NoteDataset, out_dir: Path) -> LevelCodec:
    codec = LevelCodec(config.n_levels)
    figures = {"notes": float(len(notes))}
    description = {"id": codec.id, "config": {"n_levels": config.n_levels}, "figures": figures}
    save_weights(out_dir, WEIGHTS_NAME, codec, description)
    return codec


def build_level(sizes: dict[str, int]) -> LevelCodec:
    return LevelCodec(sizes["n_levels"])


@pytest.fixture
def level(monkeypatch: pytest.MonkeyPatch) -> CodecDesign:
    """A design that is in the registry for the time of a test."""
    design = CodecDesign("level", LevelConfig, make_level, build_level)
    monkeypatch.setitem(registry.DESIGNS, design.id, design)
    return design


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a config of that section `codec`, else small."""

    def write(codec: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(
            f"[codec]\n{codec}\n[notes]\nsample_rate = 24000\nlow_pitch = 60\nhigh_pitch = 61\nn_draws = 2\n"
            "[timbre]\nbatch_size = 8\n[timbre.encoder]\nn_frames = 20\nwidth = 16\nn_layers = 1\n"
            "[timbre.loop]\nn_steps = 3\nn_warmup = 1\n"
        )
        return path

    return write


def run(stage: str, *words: object) -> int:
    parser = argparse.ArgumentParser()
    STAGES[stage].configure(parser)
    return STAGES[stage].run(parser.parse_args([str(word) for word in words]))


def run_to_the_map(config: Path, folder: Path) -> TokenStore:
    """Notes, codec, tokens and stage 1 in `folder`."""
    notes, codec, tokens = folder / "notes", folder / "codec", folder / "tokens.bin"
    run("notes", "--config", config, "--source", "synthetic", "--jobs", 1, "--out", notes)
    assert run("codec", "--config", config, "--notes", notes, "--out", codec) == 0
    assert run("tokens", "--notes", notes, "--codec", codec, "--out", tokens, "--jobs", 1) == 0
    words = ("--config", config, "--tokens", tokens, "--notes", notes, "--out", folder / "timbre")
    assert run("timbre", *words, "--device", "cpu") == 0
    return TokenStore(tokens)


def test_a_codec_may_be_chosen_over_the_one_of_a_named_config(level: CodecDesign) -> None:
    config = load_config("tiny", ["codec.n_levels=8", "codec.id=level"])
    assert config.codec == LevelConfig(n_levels=8)
    with pytest.raises(ConfigError, match="no such field"):
        load_config("tiny", ["codec.id=level", "codec.batch_size=8"])


def test_a_further_codec_needs_a_design_and_nothing_else(
    level: CodecDesign, write_config: Callable[[str], Path], tmp_path: Path
) -> None:
    store = run_to_the_map(write_config('id = "level"\nn_levels = 16'), tmp_path)
    assert (store.header.codec_id, store.header.codebook_size) == ("level", 16)
    assert isinstance(registry.load_codec(tmp_path / "codec"), LevelCodec)


def test_encodec_is_one_of_them(write_config: Callable[[str], Path], tmp_path: Path) -> None:
    weights = tmp_path / "weights.th"
    torch.save(EncodecCodec().model.state_dict(), weights)
    config = write_config(f'id = "encodec_24khz"\nn_codebooks = 2\nweights = "{weights}"')
    store = run_to_the_map(config, tmp_path)
    assert (store.header.codec_id, store.header.n_codebooks) == ("encodec_24khz-2", 2)
    codec = registry.load_codec(tmp_path / "codec")
    assert isinstance(codec, EncodecCodec) and codec.n_codebooks == 2


def test_a_config_names_the_codec(write_config: Callable[[str], Path]) -> None:
    assert registry.design_of(load_config("tiny").codec).id == TimbrelNotes.id
    config = load_config(str(write_config('id = "encodec_24khz"\nn_codebooks = 4'))).codec
    assert config == EncodecConfig(n_codebooks=4)
    assert registry.design_of(config).id == "encodec_24khz"


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ('id = "mp3"', "codec.id: 'mp3', expected 'timbrel-notes-2' or 'encodec_24khz'"),
        ("id = 3", "codec.id: 3, expected 'timbrel-notes-2' or"),
        ('id = "encodec_24khz"\nbatch_size = 3', "codec.batch_size: no such field; known: n_codebooks"),
    ],
)
def test_a_bad_choice_is_one_clear_line(
    codec: str, message: str, write_config: Callable[[str], Path]
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(str(write_config(codec)))


def test_a_folder_of_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    (tmp_path / "codec.json").write_text('{"id": "mp3"}')
    with pytest.raises(CheckpointError, match="holds codec 'mp3', expected 'timbrel-notes-2' or"):
        registry.load_codec(tmp_path)


class LateCodec(LevelCodec):
    """The same, streaming, behind four frames that hold no sound."""

    lead_frames = 4

    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        padded = torch.nn.functional.pad(audio, (4 * self.hop_length, 0))
        return super().encode(padded)[:, : self.n_frames(audio.shape[1])]

    def decode(self, codes: Tensor, *given: Tensor | None, **named: Tensor | None) -> Tensor:
        return Codec.decode(self, codes, *given, **named)

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        return {"last": torch.zeros(n_batch)}

    def decode_chunk(
        self, codes: Tensor, expression: Expression, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return super().decode(codes) * self.gain(expression.level_db), {"last": codes[:, -1, 0].float()}


def test_frames_that_hold_no_sound_are_neither_heard_nor_counted() -> None:
    codec = LateCodec(101)
    audio = torch.linspace(0.0, 1.0, 5 * 480)[None]
    codes = codec.encode(audio)
    assert codes.shape == (1, 9, 1) and codec.n_frames(5 * 480 - 7) == 9
    assert (codec.held_frames(0.1), codec.held_frames(0.001)) == (5 + 4, 1 + 4)
    torch.testing.assert_close(codec.decode(codes), LevelCodec(101).decode(LevelCodec(101).encode(audio)))
    quiet = codec.decode(codes, level_db=torch.full((1, 9), -6.0))
    torch.testing.assert_close(quiet, codec.decode(codes) * 10 ** (-6 / 20))
    assert describe_codec(codec).lead_frames == 4


def test_a_codec_that_does_not_bend_says_so() -> None:
    codec, codes = LateCodec(4), torch.zeros(1, 6, 1, dtype=torch.int64)
    with pytest.raises(TrainingError, match="level: does not bend notes; leave the cents at 0"):
        codec.decode(codes, cents=torch.full((1, 6), 50.0))
    assert codec.decode(codes, torch.tensor([3]), torch.zeros(1, 6)).shape == (1, 2 * 480)


def test_a_codec_that_does_not_stream_says_so() -> None:
    codec, codes = LevelCodec(4), torch.zeros(1, 1, 1)
    for stream in (
        lambda: codec.initial_state(1),
        lambda: codec.decode_chunk(codes, Expression.of(codes), {}),
    ):
        with pytest.raises(TrainingError, match="level: decodes whole notes only"):
            stream()
