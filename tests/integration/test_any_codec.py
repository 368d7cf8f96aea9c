"""From notes to a played note by the commands, with codecs that are not timbrel's own."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import outside_codec
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from server_process import ServerProcess

import timbrel
from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.graph_header import parse_graph_header
from timbrel_bundle.weights import source_of
from timbrel_export import model_graphs
from timbrel_training.checkpoint import load_description
from timbrel_training.codec import registry
from timbrel_training.model import ModelConfig, NoteTransformer

TOY = """
extends = "tiny"
[notes]
sample_rate = 24000
n_draws = 2
n_members = 1
max_held_seconds = 0.4
max_seconds = 0.7
[model]
digit_base = 0
n_decoder_layers = 1
[note_training.loop]
n_steps = 60
learning_rate = 3e-3
"""
ENCODEC = """
[codec]
id = "encodec"
weights = "none"
batch_size = 2
seconds = 0.2
discriminator_filters = 2
[codec.sizes]
n_filters = 4
dimension = 8
n_lstm_layers = 1
codebook_size = 32
pad_mode = "reflect"
[codec.loop]
n_steps = 12
n_warmup = 2
learning_rate = 3e-3
ema_decay = 0.9
"""
ROOT = Path(__file__).resolve().parents[2]
INSTRUMENTS = ("Nylon String", "Breathy Flute")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["level", pytest.param("encodec", marks=pytest.mark.acceptance)])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of that codec."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp(str(request.param))
    config = folder / "toy.toml"
    config.write_text(
        TOY + (ENCODEC if request.param == "encodec" else '[codec]\nid = "level"\nn_levels = 16\n')
    )
    notes, codec, tokens, timbre, model = (
        folder / name for name in ("notes", "codec", "tokens", "timbre", "model")
    )
    made = {"--notes": notes, "--codec": codec, "--tokens": tokens, "--timbre": timbre, "--model": model}

    def run(command: list[object], *names: str) -> None:
        given = [word for name in names for word in (name, made[name])]
        assert main([str(word) for word in [*command, *given]]) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(outside_codec.install(folder)))
        if request.param == "level":  # what CUDA takes is exported in test_cuda_graph.py, whatever the codec
            patch.setattr(model_graphs, "export_decoder_step_half", lambda *_: None)
        configured = ["--config", config]
        sources = [word for name in INSTRUMENTS for word in ("--source", f"synthetic:{name}")]
        run(["train", "notes", *configured, *sources, "--jobs", 1, "--out", notes])
        run(["train", "codec", *configured, "--device", "cpu", "--out", codec], "--notes")
        run(["train", "tokens", "--jobs", 1, "--out", tokens], "--notes", "--codec")
        run(["train", "timbre", *configured, "--device", "cpu", "--out", timbre], "--tokens", "--notes")
        run(["train", "model", *configured, "--device", "cpu", "--out", model], "--tokens", "--timbre")
        run(["export", "--out", folder / "bundle"], *made)
        yield folder / "bundle"
    registry._loaded.pop("level", None)
    sys.modules.pop("level_codec", None)


def test_its_graphs_carry_no_weights_and_no_paths(bundle: Path) -> None:
    """They point at the weights, each file of which holds what some graph takes, as fp16."""
    stated: dict[str, set[str]] = {}
    for path in bundle.glob("*.onnx"):
        assert str(ROOT).encode() not in path.read_bytes()
        for weight in parse_graph_header(path.read_bytes()).external_weights:
            stated.setdefault(weight.location, set()).add(source_of(weight.name))
    with safe_open(bundle / "model.safetensors", framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
    assert config == load_description(bundle.parent / "model", "model")["model"]
    parameters = {name for name, _ in NoteTransformer(ModelConfig(**config)).named_parameters()}
    weights = load_file(bundle / "model.safetensors")
    assert stated["model.safetensors"] == set(weights) == parameters
    assert all(weight.dtype == np.float16 for weight in weights.values())
    assert stated["timbre.safetensors"] == set(load_file(bundle / "timbre.safetensors"))


def test_its_notes_sound_as_pytorch_decodes_them(bundle: Path, tmp_path: Path) -> None:
    codec = registry.codec_in_bundle(Bundle.open(bundle).file("codec.safetensors"))
    server = ServerProcess(bundle)
    try:
        with timbrel.Client(server.address) as client:
            assert client.model().codec == codec.id
            lengths = []
            for instrument, seed in itertools.product(INSTRUMENTS, range(4)):
                note = client.generate(instrument, pitch=61, seconds=0.2, seed=seed)
                lengths.append(len(note.codes))
                assert note.sample_rate == codec.sample_rate
                assert len(note.audio) == len(note.codes) * codec.hop_length
                if len(note.codes):
                    wanted = codec.decode(torch.from_numpy(note.codes.astype(np.int64))[None])[0].numpy()
                    np.testing.assert_allclose(note.audio, wanted, atol=1e-4, rtol=0)
            assert max(lengths) >= 5
            with pytest.raises(
                timbrel.InvalidRequestError, match="does not bend notes; leave the cents at 0"
            ):
                client.generate("Breathy Flute", pitch=61, seconds=0.2, cents=50.0)
        words = f"render --server {server.address} --pitch 61 --seconds 0.2 --out {tmp_path / 'note.wav'}"
        assert main([*words.split(), "--timbre", "Breathy Flute"]) == 0
        assert (tmp_path / "note.wav").is_file()
    finally:
        server.close()


@pytest.mark.acceptance
def test_it_is_judged_by_the_same_report(bundle: Path) -> None:
    notes, out = bundle.parent / "notes", bundle.parent / "report"
    assert main(f"train evaluate --count 4 --bundle {bundle} --notes {notes} --out {out}".split()) == 0
    assert (out / "report.json").is_file()
