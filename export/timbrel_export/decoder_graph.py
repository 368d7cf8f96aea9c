"""The decode step as an ONNX graph: tokens in, the next tokens out, the cache written in place."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_export.cached_attention import group_query_attention, standard_attention
from timbrel_export.onnx_export import export_program
from timbrel_export.weights import WeightFile, save_graph
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV, CachedAttention
from timbrel_training.model.config import N_CONDITION_POSITIONS
from timbrel_training.model.sampling import sample

OPSET = 24
"""TensorScatter came with it; onnxruntime 1.31 rejects what Attention gained later."""


class DecoderStepGraph(nn.Module):
    """`NoteTransformer.step` and the draw of the next tokens, with keys and values as flat lists."""

    def __init__(self, model: NoteTransformer, attention: CachedAttention) -> None:
        super().__init__()
        self.model = model
        self.attention = attention

    def forward(
        self,
        tokens: Tensor,
        gate: Tensor,
        seqlens_k: Tensor,
        caches: list[Tensor],
        memories: list[Tensor],
        uniforms: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
    ) -> tuple[Tensor, ...]:
        logits, written = self.model.step(
            tokens, gate, seqlens_k, _pairs(caches), _pairs(memories), self.attention
        )
        next_tokens = sample(logits, uniforms, temperature, top_k, top_p)
        return next_tokens, logits, *(tensor for cache in written for tensor in cache)


def export_decoder_step(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the graph that servers run, with GroupQueryAttention.

    Args:
        model: its weights rounded to fp16.
        path: the .onnx file.
        weights: the model's weights.
    """
    _export(model, group_query_attention, path, weights)


def export_decoder_step_portable(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the same step in operators of the ONNX standard alone."""
    _export(model, standard_attention, path, weights)


def kv_names(kind: str, n_layers: int) -> list[str]:
    """`<kind>_k_<layer>` and `<kind>_v_<layer>` of every layer, in the order of inputs and outputs."""
    return [f"{kind}_{part}_{layer}" for layer in range(n_layers) for part in ("k", "v")]


def _export(model: NoteTransformer, attention: CachedAttention, path: Path, weights: WeightFile) -> None:
    config = model.config
    n_layers, n_codebooks = config.n_decoder_layers, config.n_codebooks
    rows = 2
    memory = torch.zeros(rows, config.n_kv_heads, N_CONDITION_POSITIONS, config.width_per_head)
    inputs = (
        torch.zeros(rows, n_codebooks, dtype=torch.int64),
        torch.ones(rows, dtype=torch.int64),
        torch.arange(rows, dtype=torch.int32),
        [tensor for cache in model.empty_caches(rows) for tensor in cache],
        [memory.clone() for _ in range(2 * n_layers)],
        torch.full((rows, n_codebooks), 0.5),
        torch.ones(rows),
        torch.full((rows,), 10, dtype=torch.int64),
        torch.ones(rows),
    )
    batch = {0: torch.export.Dim("batch")}
    per_layer = [batch] * (2 * n_layers)
    caches = kv_names("self", n_layers)
    input_names = [
        *("tokens", "gate", "seqlens_k"),
        *caches,
        *kv_names("cross", n_layers),
        *("uniforms", "temperature", "top_k", "top_p"),
    ]
    program = export_program(
        DecoderStepGraph(model, attention),
        inputs,
        input_names=input_names,
        output_names=["next_tokens", "logits", *(f"{name}_out" for name in caches)],
        dynamic_shapes=(batch, batch, batch, per_layer, per_layer, batch, batch, batch, batch),
        opset_version=OPSET,
    )
    save_graph(program, path, weights.within("model."))


def _pairs(tensors: list[Tensor]) -> list[KV]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))
