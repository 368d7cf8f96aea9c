"""Models of other kinds than the one that ships go into bundles of its format, and agree with PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from timbrel_export import exporter
from timbrel_export.step_operators import ATTENTION_INPUTS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import NoteTransformer

pytestmark = pytest.mark.usefixtures("graphs_of_the_codec", "graph_of_the_timbre_encoder")


def export(
    tiny: Any, recipe: ModuleType, out_dir: Path, **changes: Any
) -> tuple[NoteTransformer, pb.Manifest]:
    """The tiny bundle with these changes to its model and weights that all matter, exported.

    Raises:
        ExportError: a graph's interface or its logits are not what they should be.
    """
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = NoteTransformer(replace(recipe.MODEL, **changes)).eval()
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    parts = exporter.Parts(
        model,
        tiny.codec,
        tiny.timbre_encoder,
        pb.TimbreMap(points=[pb.TimbrePoint(instrument="Flute", pitch_min=36, pitch_max=96)]),
        pb.TrainingInfo(),
        recipe.RANGES,
        [recipe.sample_note(rng, held) for held in (3, 11, 24)],
    )
    manifest = exporter.export_bundle(parts, out_dir)
    assert manifest.parity.n_tokens > 1000
    assert manifest.parity.n_flips_outside_margin == 0
    assert manifest.model.n_parameters == model.n_parameters
    return model, manifest


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"n_kv_heads": 1}, id="one kv head"),
        pytest.param({"n_kv_heads": 4}, id="a kv head each"),
    ],
)
def test_other_attention(tiny: Any, recipe: ModuleType, tmp_path: Path, changes: dict[str, Any]) -> None:
    model, _ = export(tiny, recipe, tmp_path / "bundle", n_decoder_layers=1, **changes)
    graph = onnx.load(tmp_path / "bundle" / "decoder_step.onnx", load_external_data=False).graph
    attentions = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    assert len(attentions) == model.config.n_decoder_layers
    for node in attentions:
        assert next(each.f for each in node.attribute if each.name == "scale") == 1.0
        assert node.input[ATTENTION_INPUTS.index("head_sink")]  # without which a slower kernel would be taken
