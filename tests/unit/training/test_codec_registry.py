"""The registry of codecs: what config, folder and other packages make of a codec's id."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import outside_codec
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from timbrel_export.codec_graphs import describe_codec
from timbrel_training.codec import registry
from timbrel_training.codec.encodec import EncodecConfig
from timbrel_training.codec.interface import Codec, CodecDesign, Expression
from timbrel_training.codec.timbrel_notes import TimbrelNotes
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError, ConfigError, TrainingError


@pytest.fixture
def level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodecDesign]:
    """A design of another package, in the registry for the time of a test."""
    monkeypatch.syspath_prepend(str(outside_codec.install(tmp_path)))
    monkeypatch.setattr(registry, "_loaded", {})
    yield registry.design_named(outside_codec.ID)
    sys.modules.pop("level_codec")


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[str], str]:
    """Writes a config of that section `codec`."""

    def write(codec: str) -> str:
        path = tmp_path / "config.toml"
        path.write_text(f"[codec]\n{codec}\n")
        return str(path)

    return write


def test_a_codec_may_be_chosen_over_the_one_of_a_named_config(level: CodecDesign) -> None:
    config = load_config("tiny", ["codec.n_levels=8", "codec.id=level"])
    assert config.codec == level.config(n_levels=8) and registry.design_of(config.codec) is level
    with pytest.raises(ConfigError, match="no such field"):
        load_config("tiny", ["codec.id=level", "codec.batch_size=8"])


def test_a_config_names_the_codec(write_config: Callable[[str], str]) -> None:
    assert registry.design_of(load_config("tiny").codec).id == TimbrelNotes.id == registry.DEFAULT
    config = load_config(write_config('id = "encodec"\nbandwidth = 6')).codec
    assert config == EncodecConfig(bandwidth=6.0)
    assert registry.design_of(config).id == "encodec"
    assert registry.design_of(load_config("encodec").codec).id == "encodec"


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("[codec.codec]\nhop_length = 640", "hop_length: 640, expected 1280"),
        ("[codec.codec]\nn_templates = 0", "n_templates: 0, expected at least 1"),
        ("[codec.codec]\ncodebook_size = 1000", "codebook_size: 1000, expected at least 1001"),
        ("[codec.codec]\nn_templates = 1024", "codebook_size: 1024, expected at least 3073"),
        ("[codec.codec.header]\nn_codes = 0", "n_codes: 0, expected at least 1"),
        ('id = "mp3"', "codec.id: 'mp3', expected 'encodec' or 'timbrel-notes-2'"),
        ("id = 3", "codec.id: 3, expected 'encodec' or"),
        ('id = "encodec"\nn_templates = 3', "codec.n_templates: no such field; known: weights, bandwidth"),
        ('id = "encodec"\nbandwidth = 2', "codec.bandwidth: EnCodec has 1.5, 3, 6, 12, 24 kbit/s, not 2"),
        ('id = "encodec"\n[codec.sizes]\nn_filters = 4', "codec.sizes: those of Meta's weights are given"),
        (
            'id = "encodec"\nweights = "none"\n[codec.loop]\nshards = 2',
            "codec.loop: EnCodec trains in one shard",
        ),
        (
            'id = "encodec"\nweights = "none"\nseconds = 0.1\n[codec.sizes]\nsample_rate = 8000',
            "codec.seconds: 0.1",
        ),
        ('id = "encodec"\nweights = "none"\n[codec.sizes]\nratios = [1, 5]', "ratios: .* from 2 on"),
        (
            'id = "encodec"\nweights = "none"\n[codec.sizes]\npad_mode = "reflect"\nratios = [2, 5]',
            "expected a first one above 2",
        ),
        ('id = "encodec"\nweights = "none"\n[codec.sizes]\npad_mode = "same"', "'constant' or 'reflect'"),
        ('id = "encodec"\nweights = "none"\n[codec.sizes]\ncodebook_size = 70000', "at most 65536"),
    ],
)
def test_a_bad_choice_is_one_clear_line(codec: str, message: str, write_config: Callable[[str], str]) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write_config(codec))


def test_a_package_that_fails_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, target in (
        ("gone", "no_such_module:DESIGN"),
        ("odd", "json:loads"),
        ("other", "level_codec:DESIGN"),
    ):
        outside_codec.install(tmp_path, name, target)
        with pytest.raises(
            ConfigError, match=f"codec '{name}': {target} (cannot be imported|is no CodecDesign)"
        ):
            registry.design_named(name)


def test_a_codec_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys; from timbrel_training.config import load_config; load_config('tiny')\n"
        "assert not any(name.startswith('encodec') for name in sys.modules)\n"
        "load_config('encodec'); assert 'encodec' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "about", ['{"id": "mp3"}', "{}", '{"id": "encodec"}', '{"id": "encodec", "config": {"a": 1}}']
)
def test_a_folder_of_no_known_codec_is_refused(about: str, tmp_path: Path) -> None:
    save_file({}, tmp_path / "codec.safetensors")
    (tmp_path / "codec.json").write_text(about)
    with pytest.raises(CheckpointError, match="holds no codec that can be made again"):
        registry.load_codec(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ({"header": {"n_codes": 2, "width": 6000, "n_blocks": 1}}, "its sizes ask for far more than the"),
        ({"header": {"n_codes": 2, "width": 8, "n_blocks": 500}}, "its sizes ask for far more than the"),
        ({"codebook_size": 3_000_000}, "codebook_size: 3000000, expected at most 65536"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_they_take_memory(
    tiny_bundle: Path, tmp_path: Path, sizes: dict[str, Any], fault: str
) -> None:
    weights = tiny_bundle / "codec.safetensors"
    with safe_open(weights, framework="pt") as file:
        about = json.loads(file.metadata()["config"])
    about["config"] |= sizes
    save_file(load_file(weights), tmp_path / "codec.safetensors", {"config": json.dumps(about)})
    (tmp_path / "codec.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=fault):
        registry.load_codec(tmp_path)
    with pytest.raises(CheckpointError, match=fault):
        registry.codec_in_bundle(tmp_path / "codec.safetensors")


def late(level: CodecDesign) -> Codec:
    """The same codec behind four frames that hold no sound."""
    codec = level.build({"n_levels": 101})
    codec.lead_frames = 4
    return codec


def test_frames_that_hold_no_sound_are_neither_heard_nor_counted(level: CodecDesign) -> None:
    codec, codes = late(level), torch.randint(0, 101, (1, 9, 1))
    assert codec.n_frames(5 * 480 - 7) == 9
    assert (codec.held_frames(0.1), codec.held_frames(0.001)) == (5 + 4, 1 + 4)
    torch.testing.assert_close(
        codec.decode(codes), level.build({"n_levels": 101}).decode(codes)[:, 4 * 480 :]
    )
    quiet = codec.decode(codes, level_db=torch.full((1, 9), -6.0))
    torch.testing.assert_close(quiet, codec.decode(codes) * 10 ** (-6 / 20))
    assert describe_codec(codec).lead_frames == 4


def test_a_codec_that_does_not_bend_says_so(level: CodecDesign) -> None:
    codec, codes = late(level), torch.zeros(1, 6, 1, dtype=torch.int64)
    with pytest.raises(TrainingError, match="level: does not bend notes; leave the cents at 0"):
        codec.decode(codes, cents=torch.full((1, 6), 50.0))
    assert codec.decode(codes, torch.tensor([3]), torch.zeros(1, 6)).shape == (1, 2 * 480)


def test_a_codec_that_does_not_stream_says_so(level: CodecDesign) -> None:
    codec, codes = late(level), torch.zeros(1, 1, 1, dtype=torch.int64)
    for stream in (
        lambda: Codec.initial_state(codec, 1),
        lambda: Codec.decode_chunk(codec, codes, Expression.of(codes), {}),
    ):
        with pytest.raises(TrainingError, match="level: decodes whole notes only"):
            stream()
