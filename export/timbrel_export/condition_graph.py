"""The condition encoder as an ONNX graph: what to play in, what each decoder layer keeps of it out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_export.absorbed_attention import absorb
from timbrel_export.memories import memory_names
from timbrel_export.onnx_export import export_program
from timbrel_export.weights import WeightFile, save_graph
from timbrel_training.model import NoteTransformer
from timbrel_training.model.layers import CrossLayer

OPSET = 20
"""Any that has LayerNormalization and Gelu."""


class ConditionGraph(nn.Module):
    """timbre [B, 2], pitch [B], velocity [B] -> every layer's memories, as `memory_names` lists them."""

    def __init__(self, model: NoteTransformer, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        memories = self.model.cross_kv(self.model.condition(timbre, pitch, velocity))
        if self.model.config.conditioning == "prefix":
            kept = [tensor.contiguous() for memory in memories for tensor in memory]
        else:
            layers = cast("Iterable[CrossLayer]", self.model.decoder.layers)
            absorbed = [
                absorb(layer.cross_attention, memory) for layer, memory in zip(layers, memories, strict=True)
            ]
            kept = [tensor for each in absorbed for tensor in each if tensor is not None]
        return tuple(tensor.to(self.dtype) for tensor in kept)


def export_condition_encoder(
    model: NoteTransformer, path: Path, weights: WeightFile, dtype: torch.dtype = torch.float32
) -> None:
    """Writes the graph that runs once a note, at admission.

    Args:
        model: its weights rounded to fp16.
        path: the .onnx file.
        weights: the model's weights.
        dtype: of the outputs; the arithmetic is fp32.
    """
    batch = {0: torch.export.Dim("batch")}
    program = export_program(
        ConditionGraph(model, dtype),
        (torch.zeros(2, 2), torch.full((2,), 60), torch.full((2,), 100.0)),
        input_names=["timbre", "pitch", "velocity"],
        output_names=memory_names(model.config),
        dynamic_shapes=(batch, batch, batch),
        opset_version=OPSET,
    )
    save_graph(program, path, weights.within("model."))
