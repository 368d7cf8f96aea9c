"""The fused step against the model's own, for every kind of model; and what its graph is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from timbrel_bundle.runtime import session_options
from timbrel_export.absorbed_attention import absorb
from timbrel_export.decoder_step import FusedStep
from timbrel_export.errors import ParityError
from timbrel_export.parity import PrecisionParity, compare_decoder
from timbrel_export.step_operators import StandardOperators
from timbrel_training.model import NoteTransformer

KINDS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "post-norm": {"norm": "post"},
    "relu": {"activation": "relu"},
    "one kv head": {"n_kv_heads": 1},
    "a kv head each": {"n_kv_heads": 4},
    "header network": {"lead_frames": 3, "header_width": 24},
}
EXPLAINED = {
    "Gather": "embeddings of tokens, gate and position; the token that was drawn",
    "Add": "positions, residual connections, biases",
    "Slice": "EOS apart from the codes, in the draw",
    "Mul": "the embedding's scale; the draw; of the queries' weights, folded as the graph is loaded",
    "ReduceSum": "the codebooks' embeddings; the draw",
    "Unsqueeze": "per-row numbers beside [B, K, V]",
    "LayerNormalization": "the model's",
    "Transpose": "of weights: folded as the graph is loaded",
    "MatMul": "the model's",
    "GroupQueryAttention": "the model's",
    "Reshape": "cross-attention's weights by head; the logits by codebook",
    "Softmax": "cross-attention's; the draw",
    "Gelu": "the model's",
    "TopK": "the draw",
    "CumSum": "the draw",
    "If": "the draw: whether a second look is needed",
    "ReduceMin": "the draw",
    "Min": "the draw",
    "Or": "the draw",
    "Where": "the draw; the heads' mask, folded as the graph is loaded",
    "Clip": "the draw",
    "Equal": "the draw",
    "Sub": "the draw",
    "Div": "the draw",
    "Less": "the draw",
    "LessOrEqual": "the draw",
    "Cast": "the draw",
    "GatherElements": "the draw",
}
"""Every type of node in decoder_step.onnx, and what it is there for."""


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_it_gives_the_models_logits(recipe: ModuleType, kind: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = NoteTransformer(replace(recipe.MODEL, **KINDS[kind])).eval()
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        tokens = torch.randint(0, recipe.MODEL.codebook_size, (6, 3, recipe.MODEL.n_codebooks))
    asked = torch.tensor([[0.3, -0.5]] * 3), torch.tensor([40, 60, 90]), torch.full((3,), 80.0)
    memories, header = model.decoder.memories(model.condition(*asked)), model.header_rows(*asked)
    absorbed = [
        absorb(layer.cross_attention, memory)
        for layer, memory in zip(model.decoder.layers, memories, strict=True)
    ]
    step = FusedStep(model, StandardOperators())
    plain = fused = model.empty_caches(3)
    for number, read in enumerate(tokens):
        gate, position = torch.tensor([1, 0, 1]), torch.full((3,), number, dtype=torch.int32)
        expected, plain = model.decoder.step(read, gate, position, plain, memories, header=header)
        found, fused = step(read, gate, position, fused, absorbed, header)
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)
    assert expected[:, 0, : recipe.MODEL.codebook_size].std() > 0.1


def test_every_node_of_the_graph_is_accounted_for(tiny: Any) -> None:
    graph = onnx.load(tiny.bundle.path / "decoder_step.onnx", load_external_data=False).graph
    count = Counter(node.op_type for node in graph.node)
    assert count.keys() <= EXPLAINED.keys()
    layers = tiny.model.config.n_decoder_layers
    assert count["GroupQueryAttention"] == layers
    assert count["Softmax"] == layers + 2
    assert count["TopK"] == count["If"] == 1
    # Queries, keys and values in one, the output, both absorbed halves, up, down; and all heads in one.
    assert count["MatMul"] == 6 * layers + 1
    assert count["Reshape"] == 2 * layers + 2  # one is of the positions, to look up a bias
    assert not count.keys() & {"Shape", "Concat", "Split", "Expand", "Identity", "ScatterElements"}


def test_weights_are_ready_when_the_graph_is_loaded(tiny: Any, tmp_path: Path) -> None:
    """Nothing is left of the arithmetic on weights: each product reads one, or what a note keeps."""
    options = session_options(1)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    tiny.bundle.session("decoder_step.onnx", options=options)
    graph = onnx.load(tmp_path / "optimized.onnx").graph
    given = {value.name for value in (*graph.initializer, *graph.input)}
    products = [node for node in graph.node if node.op_type == "MatMul"]
    assert len(products) == 6 * tiny.model.config.n_decoder_layers + 1
    assert {node.input[1] for node in products} <= given


@pytest.mark.parametrize("graph", ["decoder_step_int8.onnx", "decoder_step_half.onnx"])
def test_lower_precisions_stay_close_to_the_oracle(tiny: Any, graph: str) -> None:
    decoder = tiny.decoder(graph)
    parity = compare_decoder(tiny.model, decoder, tiny.notes, PrecisionParity())
    assert parity.n_tokens > 300
    assert 0 < parity.mean_kl < 0.001
    named = tiny.bundle.manifest.parity
    assert 0 < named.int8_mean_kl < 0.001 and 0 <= named.fp16_mean_kl < 0.001


def test_a_graph_that_strays_is_refused() -> None:
    parity = PrecisionParity()
    oracle = np.zeros((2, 1, 4), dtype=np.float32)
    parity.add(
        "note", np.tile(np.array([5.0, 0, 0, 0], dtype=np.float32), (2, 1, 1)), np.zeros((2, 1)), oracle
    )
    expected = np.log(np.exp(5) + 3) - 5 / 4 - np.log(4)  # of a uniform distribution from softmax(5, 0, 0, 0)
    assert parity.mean_kl == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ParityError, match=r"graph: strays from the oracle by .* nats per token"):
        parity.check("graph")
