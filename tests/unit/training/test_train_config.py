"""The config of a training: named ones, files, overrides, and what is said of mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from timbrel_training.config import NAMED, load_config
from timbrel_training.errors import ConfigError
from timbrel_training.note_training.train import NoteTrainingConfig


@pytest.mark.parametrize("name", NAMED)
def test_named_configs_load(name: str) -> None:
    config = load_config(name)
    assert config.timbre.loop.n_steps > 0
    assert config.model.max_frames > 0


def test_tiny_is_smaller_than_cpu_and_cpu_than_gpu() -> None:
    sizes = [load_config(name).model.d_model for name in ("tiny", "cpu", "gpu")]
    assert sizes == sorted(sizes)


def test_overrides_reach_nested_fields() -> None:
    config = load_config(
        "tiny", ["note_training.loop.learning_rate=3e-4", "model.norm=post", "timbre.margin=1"]
    )
    assert config.note_training.loop.learning_rate == 3e-4
    assert config.model.norm == "post"
    assert config.timbre.margin == 1.0


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[note_training]\nbatch_steps = 99\n")
    config = load_config(str(path))
    assert config.note_training.batch_steps == 99
    assert config.note_training.centroid_share == NoteTrainingConfig().centroid_share


def test_a_file_may_say_only_what_is_different(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "cpu"\n[codec]\nid = "encodec"\n[note_training.loop]\nn_steps = 9\n')
    mine, cpu = load_config(str(path)), load_config("cpu")
    assert mine.note_training.loop == replace(cpu.note_training.loop, n_steps=9)
    assert mine.model == cpu.model and type(mine.codec) is not type(cpu.codec)
    path.write_text('extends = "cpu"\n[model]\nconditioning = "cross"\n')  # as earlier timbrels unpacked
    assert load_config(str(path)) == cpu
    path.write_text('extends = "gpus"')
    with pytest.raises(ConfigError, match="extends 'gpus', expected one of tiny, cpu"):
        load_config(str(path))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_modle=3", "did you mean d_model"),
        ("model.d_model=wide", "expected int"),
        ("model.d_model=3.5", "expected int"),
        ("model.norm=middle", "'pre' or 'post'"),
        ("model.dropout=1.5", "^model.dropout is 1.5; it must"),
        ("model.conditioning=prefix", "tiny: conditioning is 'prefix'; it must be cross"),
        ("timbre.loop.precision=float8", "auto, float32 or bfloat16"),
        ("note_training.centroid_share=2", "expected 0 to 1"),
        ("codec.loop.clip_norm=0", "^codec.loop.clip_norm: 0.0, expected more than 0"),
        ("headers.loop.n_steps=0", "^headers.loop.n_steps: 0, expected at least 1"),
        ("notes.n_draws=0", "^notes.n_draws must be positive, got 0"),
        ("notes.max_seconds=nan", "^notes.max_seconds: nan, expected a finite number"),
        ("notes.max_held_seconds=inf", "^notes.max_held_seconds: inf, expected a finite number"),
        ("notes.high_pitch=0", "^notes: pitches must be"),
        ("codec.loop.learning_rate=-1", "learning_rate: -1.0, expected more than 0"),
        ("timbre.loop.learning_rate=nan", "learning_rate: nan, expected a finite number"),
        ("timbre.loop.ema_decay=1.5", "ema_decay: 1.5, expected 0 to 1"),
        ("timbre.loop.beta2=-0.5", "beta2: -0.5, expected at least 0 and below 1"),
        ("timbre.loop.n_warmup=-1", "n_warmup: -1, expected at least 0"),
        ("timbre.loop.seed=-1", "seed: -1, expected at least 0"),
        (f"timbre.loop.seed={2**64}", f"timbre.loop.seed: {2**64}, expected at least 0 and below {2**64}"),
        ("timbre.loop.beta2=1", "timbre.loop.beta2: 1.0, expected at least 0 and below 1"),
        ("model.head_dim=0", "model.head_dim is 0; it must be at least 1"),
        ("timbre.encoder.n_layers=0", "n_layers: 0, expected at least 1"),
        ("timbre.encoder.n_layers=9", "n_layers: 9, expected at most 8"),
        ("timbre.encoder.n_channels=0", "n_channels: 0, expected at least 1"),
        ("timbre.encoder.width=0", "width: 0, expected at least 1"),
        ("timbre.encoder.dropout=1.0", "dropout: 1.0, expected at least 0 and below 1"),
        ("note_training.noise_fraction=nan", "noise_fraction: nan, expected a finite number"),
        ("note_training.validation_notes=0", "validation_notes: 0, expected at least 1"),
        ("hearing.between_share=-0.1", "between_share: -0.1, expected 0 to 1"),
        (f"note_training.loop.learning_rate={'9' * 400}", "learning_rate: a number of 400 digits"),
        (f"note_training.loop.n_steps={10**20}", "n_steps: a number of 21 digits, expected 2"),
        (f"note_training.loop.n_steps={'9' * 5000}", "n_steps: '9{99}, expected int"),
        (f"model.d_model={'[' * 3000}", r"model.d_model: '\[{99}, expected int"),
        ("codec.id=[1]", r"codec.id: \[1\], expected 'encodec' or"),
        ("nonsense", "section.field=value"),
        ("model.d_model.x=1", "not a section"),
    ],
)
def test_mistakes_are_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("tiny", [override])


def test_unknown_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of tiny, cpu, gpu"):
        load_config("huge")
    path = tmp_path / "bad.toml"
    path.write_text("[model\n")
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        load_config(str(path))
    for text in (f"[model]\nd_model = {'[' * 3000}", f"[model]\nd_model = {'9' * 5000}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"bad\.toml: "):
            load_config(str(path))
    for text in ("codec = 3", "model = 3", 'extends = "tiny"\ncodec = 3'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"bad\.toml: (codec|model): 3, expected a section"):
            load_config(str(path))
