"""The decode graph for CUDA as an export makes it now: the bundle that ships may be older."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CONDITION_ENCODER_HALF, DECODER_STEP_HALF
from timbrel_bundle.runtime import session_options
from timbrel_export.model_graphs import export_decoder_step_half
from timbrel_export.onnx_export import WeightFile
from timbrel_export.parity import GraphDecoder, PrecisionParity, compare_decoder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with this graph made anew."""
    folder = shutil.copytree(tiny.bundle.path, tmp_path_factory.mktemp("half") / "bundle")
    path: Path = folder / DECODER_STEP_HALF
    export_decoder_step_half(
        tiny.model, path, WeightFile("model.safetensors", frozenset(tiny.model.state_dict()))
    )
    return folder


def test_embeddings_are_summed_by_a_product(exported: Path) -> None:
    """A sum of fp16 is a cast, a launch of as many blocks as CUDA allows, and a cast back."""
    graph = onnx.load(exported / DECODER_STEP_HALF, load_external_data=False).graph
    made = {output: node for node in graph.node for output in node.output}
    first_norm = next(node for node in graph.node if node.op_type == "SkipLayerNormalization")
    behind = [summed := made[first_norm.input[0]]]
    while (node := made.get(behind[-1].input[0])) is not None:
        behind.append(node)
    assert summed.op_type == "MatMul"
    assert "Gather" in {node.op_type for node in behind}
    assert not {"ReduceSum", "Cast"} & {node.op_type for node in behind}


def test_it_stays_close_to_the_oracle(tiny: Any, exported: Path) -> None:
    bundle = Bundle.open(exported, verify=False)
    sessions = [
        bundle.session(name, options=session_options(1))
        for name in (CONDITION_ENCODER_HALF, DECODER_STEP_HALF)
    ]
    parity = compare_decoder(
        tiny.model, GraphDecoder(*sessions, tiny.model.config), tiny.notes, PrecisionParity()
    )
    assert parity.n_tokens > 300
    assert 0 < parity.mean_kl < 0.001
