"""The tiny bundle, opened, beside the PyTorch modules that it was made from."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training_notes import library_dir

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CODEC_DECODER, CODEC_WEIGHTS
from timbrel_bundle.runtime import session_options
from timbrel_export import codec_graphs, exporter
from timbrel_export.parity import GraphDecoder
from timbrel_export.sample_note import SampleNote
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec import registry
from timbrel_training.codec.interface import Codec
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.encoder import TimbreEncoder

__all__ = ["library_dir"]

Alter = Callable[[Path], None]
"""Changes something in a folder of graphs and weights."""

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Tiny:
    """A bundle and its sources."""

    bundle: Bundle
    model: NoteTransformer
    codec: Codec
    timbre_encoder: TimbreEncoder
    notes: list[SampleNote]
    """Notes that it should write, more or less: made-up codes of different lengths."""

    def decoder(self, graph: str) -> GraphDecoder:
        """Runs one of the decode graphs."""
        suffix = "_half" if "half" in graph else ""
        condition = self.bundle.session(f"condition_encoder{suffix}.onnx", options=session_options(1))
        return GraphDecoder(condition, self.session(graph), self.model.config)

    def session(self, graph: str) -> Any:
        """A session of one thread."""
        return self.bundle.session(graph, options=session_options(1))


@pytest.fixture(scope="session")
def recipe() -> ModuleType:
    """The script that makes the tiny bundle, as a module."""
    spec = importlib.util.spec_from_file_location("make_tiny_bundle", DATA / "make_tiny_bundle.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny(recipe: ModuleType, tiny_bundle: Path) -> Tiny:
    torch.set_num_threads(1)
    folder = tiny_bundle
    rng = np.random.default_rng(7)
    return Tiny(
        bundle=Bundle.open(folder),
        model=_filled(NoteTransformer(recipe.MODEL), folder / "model.safetensors"),
        codec=registry.codec_in_bundle(folder / "codec.safetensors"),
        timbre_encoder=_filled(recipe.make_timbre_encoder(), folder / "timbre.safetensors"),
        notes=[recipe.sample_note(rng, held) for held in (3, 11, 24)],
    )


@pytest.fixture
def tamper(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Callable[[Alter], None]:
    """Has the graphs taken from the tiny bundle, instead of being made anew, and altered on the way."""

    def arrange(alter: Alter) -> None:
        def write_graphs(*parts: Any) -> pb.CodecSpec:
            folder: Path = parts[-1]
            for file in tiny.bundle.manifest.files:
                if file.name != "timbre_map.json":
                    (folder / file.name).write_bytes((tiny.bundle.path / file.name).read_bytes())
            alter(folder)
            spec: pb.CodecSpec = tiny.bundle.manifest.codec
            return spec

        monkeypatch.setattr(exporter, "write_graphs", write_graphs)

    return arrange


@pytest.fixture
def graphs_of_the_codec(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the codec's decoder from the tiny bundle: to make it takes as long as all the other graphs
    together, and test_codec_timbrel_notes.py does in `make acceptance`."""

    def take_codec(codec: object, folder: Path) -> pb.CodecSpec:
        for name in (CODEC_DECODER, CODEC_WEIGHTS):
            shutil.copy(tiny.bundle.path / name, folder)
        spec: pb.CodecSpec = tiny.bundle.manifest.codec
        return spec

    monkeypatch.setattr(codec_graphs, "export_codec", take_codec)


@pytest.fixture
def graph_of_the_timbre_encoder(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes it from the tiny bundle, as test_export.py does not."""

    def take_timbre_encoder(encoder: object, path: Path, weights: object) -> None:
        shutil.copy(tiny.bundle.path / path.name, path)

    monkeypatch.setattr(codec_graphs, "export_timbre_encoder", take_timbre_encoder)


def _filled(module: Any, path: Path) -> Any:
    """The module in evaluation mode with the weights of a bundle; what is no weight stays."""
    weights = {name: tensor.float() for name, tensor in load_file(path).items()}
    missing, unexpected = nn.Module.load_state_dict(module, weights, strict=False)
    assert not unexpected
    assert not {name for name, _ in module.named_parameters()}.intersection(missing)
    return module.eval()
