"""The model as ONNX graphs: the condition encoder, run once a note, and the decode step.

The decode step reads tokens, gives the next ones and writes its cache in place. Four graphs of it,
of other operators and precision, have inputs and outputs that differ in type alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_export import interface, step_operators
from timbrel_export.absorbed_attention import Absorbed, absorb, cross_layers
from timbrel_export.decoder_step import FusedStep
from timbrel_export.onnx_export import WeightFile, export_program, save_graph
from timbrel_export.sample_note import CacheScales
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV
from timbrel_training.model.sampling import Sampling

STEP_OPSET = 24
"""TensorScatter came with it; onnxruntime 1.31 rejects what Attention gained later."""


class ConditionGraph(nn.Module):
    """timbre [B, 2], pitch [B], velocity [B] -> every layer's memories (`interface.memory_names`)."""

    def __init__(self, model: NoteTransformer, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        memories = self.model.decoder.memories(self.model.condition(timbre, pitch, velocity))
        layers = cross_layers(self.model)
        absorbed = [
            absorb(layer.cross_attention, memory) for layer, memory in zip(layers, memories, strict=True)
        ]
        kept = [tensor for each in absorbed for tensor in each]
        if (header := self.model.header_rows(timbre, pitch, velocity)) is not None:
            kept.append(header)
        return tuple(tensor.to(self.dtype) for tensor in kept)


class DecoderStepGraph(nn.Module):
    """A step of the model and the draw of the next tokens, with keys and values as flat lists."""

    def __init__(self, model: NoteTransformer, operators: step_operators.StandardOperators) -> None:
        super().__init__()
        self.config = model.config
        self.operators = operators
        self.step = FusedStep(model, operators)

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
        n_header = int(self.config.has_header_network)
        memories, header = memories[: len(memories) - n_header], memories[len(memories) - n_header :]
        absorbed = [Absorbed(*pair) for pair in _pairs(memories)]
        logits, written = self.step(tokens, gate, seqlens_k, _pairs(caches), absorbed, *header)
        lasts = self.step.model.decoder.rarely_ends(gate)
        next_tokens = self.operators.sample(logits, uniforms, lasts, temperature, top_k, top_p)
        return next_tokens, logits, *(tensor for cache in written for tensor in cache)


def export_condition_encoder(
    model: NoteTransformer, path: Path, weights: WeightFile, dtype: torch.dtype = torch.float32
) -> None:
    """Writes the graph that runs once a note, at admission, of a model rounded to fp16. Its outputs are of
    `dtype`; the arithmetic is fp32."""
    batch = {0: torch.export.Dim("batch")}
    program = export_program(
        ConditionGraph(model, dtype),
        (torch.zeros(2, 2), torch.full((2,), 60), torch.full((2,), 100.0)),
        input_names=["timbre", "pitch", "velocity"],
        output_names=interface.memory_names(model.config),
        dynamic_shapes=(batch, batch, batch),
    )
    save_graph(program, path, weights.within("model."))


def export_decoder_step(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the graph that servers run, in onnxruntime's own operators, of a model rounded to fp16."""
    _export(model, step_operators.CpuOperators(), path, weights)


def export_decoder_step_portable(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the same step in operators of the ONNX standard alone."""
    _export(model, step_operators.StandardOperators(), path, weights)


def export_decoder_step_int8(
    model: NoteTransformer, path: Path, weights: WeightFile, scales: Sequence[CacheScales]
) -> None:
    """Writes the same step with a cache of 8 bits, and weights that a runtime quantises as it loads them.

    Each layer's cache has `scales` of its own; they stay in the graph.
    """
    model = copy.deepcopy(model)
    for layer, (keys, values) in zip(cross_layers(model), scales, strict=True):
        layer.self_attention.register_buffer("key_scales", keys, persistent=False)
        layer.self_attention.register_buffer("value_scales", values, persistent=False)
    for module in (model.decoder.tokens, *(m for m in model.decoder.modules() if isinstance(m, nn.Linear))):
        step_operators.add_quantized_weights(module)
    weights = weights.with_derived(step_operators.derived_names)
    _export(model, step_operators.Int8Operators(), path, weights, torch.int8)


def export_decoder_step_half(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the same step in fp16, for CUDA: caches and memories too; logits and the draw stay in fp32."""
    model = copy.deepcopy(model).half()
    step_operators.add_summing(model.decoder.tokens)
    _export(model, step_operators.CudaOperators(), path, weights)


def _export(
    model: NoteTransformer,
    operators: step_operators.StandardOperators,
    path: Path,
    weights: WeightFile,
    cache_type: torch.dtype | None = None,
) -> None:
    """Writes a step of these operators, its keys and values of `cache_type`, by default the weights' own."""
    config = model.config
    dtype = model.decoder.tokens.weight.dtype
    rows, n_codebooks = 2, config.n_codebooks
    caches = interface.cache_names(config.n_decoder_layers)
    memories = interface.memory_names(config)
    inputs = (
        torch.zeros(rows, n_codebooks, dtype=torch.int64),
        torch.ones(rows, dtype=torch.int64),
        torch.arange(rows, dtype=torch.int32),
        [tensor.to(cache_type or dtype) for cache in model.empty_caches(rows) for tensor in cache],
        [torch.zeros(rows, *shape, dtype=dtype) for shape in interface.memory_shapes(config)],
        torch.full((rows, n_codebooks), 0.5),
        *Sampling().rows(rows),
    )
    batch = {0: torch.export.Dim("batch")}
    shapes = (
        *(batch, batch, batch),
        *([batch] * len(caches), [batch] * len(memories)),
        *(batch, *[batch] * len(interface.SAMPLING_INPUTS)),
    )
    program = export_program(
        DecoderStepGraph(model, operators),
        inputs,
        input_names=[
            *("tokens", "gate", "seqlens_k"),
            *caches,
            *memories,
            *("uniforms", *interface.SAMPLING_INPUTS),
        ],
        output_names=["next_tokens", "logits", *(f"{name}_out" for name in caches)],
        dynamic_shapes=shapes,
        opset_version=STEP_OPSET,
    )
    save_graph(program, path, weights.within("step.model."))


def _pairs(tensors: Sequence[Tensor]) -> list[KV]:
    """Groups tensors of two a layer, in the order of `interface.cache_names` or `memory_names`, by layer."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))
