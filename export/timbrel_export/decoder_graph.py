"""The decode step as an ONNX graph: tokens in, the next tokens out, the cache written in place."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_export.absorbed_attention import to_absorbed
from timbrel_export.cache_scales import CacheScales
from timbrel_export.fused_step import FusedStep
from timbrel_export.memories import memory_names, memory_shapes
from timbrel_export.onnx_export import export_program
from timbrel_export.prefix_step import PrefixStep
from timbrel_export.quantized_linear import add_quantized_weights, derived_names
from timbrel_export.step_operators import (
    CpuOperators,
    CudaOperators,
    Int8Operators,
    StandardOperators,
    StepOperators,
)
from timbrel_export.weights import WeightFile, save_graph
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV
from timbrel_training.model.layers import CrossLayer

OPSET = 24
"""TensorScatter came with it; onnxruntime 1.31 rejects what Attention gained later."""


class DecoderStepGraph(nn.Module):
    """A step of the model and the draw of the next tokens, with keys and values as flat lists."""

    def __init__(self, model: NoteTransformer, operators: StepOperators) -> None:
        super().__init__()
        self.config = model.config
        self.operators = operators
        self.step = (FusedStep if model.config.conditioning == "cross" else PrefixStep)(model, operators)

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
        cross = self.config.conditioning == "cross"
        remembered = to_absorbed(memories, self.config) if cross else _pairs(memories)
        logits, written = self.step(tokens, gate, seqlens_k, _pairs(caches), remembered)
        next_tokens = self.operators.sample(logits, uniforms, temperature, top_k, top_p)
        return next_tokens, logits, *(tensor for cache in written for tensor in cache)


def export_decoder_step(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the graph that servers run, in onnxruntime's own operators.

    Args:
        model: its weights rounded to fp16.
        path: the .onnx file.
        weights: the model's weights.
    """
    _export(model, CpuOperators(), path, weights)


def export_decoder_step_portable(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the same step in operators of the ONNX standard alone."""
    _export(model, StandardOperators(), path, weights)


def export_decoder_step_int8(
    model: NoteTransformer, path: Path, weights: WeightFile, scales: Sequence[CacheScales]
) -> None:
    """Writes the same step with a cache of 8 bits, and weights that a runtime quantises as it loads them.

    Args:
        model: its weights rounded to fp16.
        path: the .onnx file.
        weights: the model's weights.
        scales: of each layer's cache; they stay in the graph.
    """
    model = copy.deepcopy(model)
    layers = cast("Iterable[CrossLayer]", model.decoder.layers)
    for layer, (keys, values) in zip(layers, scales, strict=True):
        layer.self_attention.register_buffer("key_scales", keys, persistent=False)
        layer.self_attention.register_buffer("value_scales", values, persistent=False)
    for module in (model.decoder.tokens, *(m for m in model.decoder.modules() if isinstance(m, nn.Linear))):
        add_quantized_weights(module)
    _export(model, Int8Operators(), path, weights.with_derived(derived_names), torch.int8)


def export_decoder_step_half(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the same step in fp16, for CUDA: caches and memories too; logits and the draw stay in fp32."""
    _export(copy.deepcopy(model).half(), CudaOperators(), path, weights)


def cache_names(n_layers: int) -> list[str]:
    """`self_k_<layer>` and `self_v_<layer>` of every layer, in the order of inputs and outputs."""
    return [f"self_{part}_{layer}" for layer in range(n_layers) for part in ("k", "v")]


def _export(
    model: NoteTransformer,
    operators: StepOperators,
    path: Path,
    weights: WeightFile,
    cache_type: torch.dtype | None = None,
) -> None:
    """`cache_type`: of keys and values; None: the weights'."""
    config = model.config
    dtype = model.decoder.tokens.weight.dtype
    rows, n_codebooks = 2, config.n_codebooks
    caches = cache_names(config.n_decoder_layers)
    memories = memory_names(config)
    inputs = (
        torch.zeros(rows, n_codebooks, dtype=torch.int64),
        torch.ones(rows, dtype=torch.int64),
        torch.arange(rows, dtype=torch.int32),
        [tensor.to(cache_type or dtype) for cache in model.empty_caches(rows) for tensor in cache],
        [torch.zeros(rows, *shape, dtype=dtype) for shape in memory_shapes(config)],
        torch.full((rows, n_codebooks), 0.5),
        torch.ones(rows),
        torch.full((rows,), 10, dtype=torch.int64),
        torch.ones(rows),
    )
    batch = {0: torch.export.Dim("batch")}
    shapes = (
        *(batch, batch, batch),
        *([batch] * len(caches), [batch] * len(memories)),
        *(batch, batch, batch, batch),
    )
    program = export_program(
        DecoderStepGraph(model, operators),
        inputs,
        input_names=[
            *("tokens", "gate", "seqlens_k"),
            *caches,
            *memories,
            *("uniforms", "temperature", "top_k", "top_p"),
        ],
        output_names=["next_tokens", "logits", *(f"{name}_out" for name in caches)],
        dynamic_shapes=shapes,
        opset_version=OPSET,
    )
    save_graph(program, path, weights.within("step.model."))


def _pairs(tensors: Sequence[Tensor]) -> list[KV]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))
