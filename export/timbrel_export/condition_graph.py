"""The condition encoder as an ONNX graph: what to play in, keys and values for each decoder layer out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_export.decoder_graph import kv_names
from timbrel_export.onnx_export import export_program
from timbrel_export.weights import WeightFile, save_graph
from timbrel_training.model import NoteTransformer

OPSET = 20
"""Any that has LayerNormalization and Gelu."""


class ConditionGraph(nn.Module):
    """timbre [B, 2], pitch [B], velocity [B] -> cross_k_0, cross_v_0, ... [B, n_kv_heads, 3, head_dim]."""

    def __init__(self, model: NoteTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        memories = self.model.cross_kv(self.model.condition(timbre, pitch, velocity))
        return tuple(tensor.contiguous() for memory in memories for tensor in memory)


def export_condition_encoder(model: NoteTransformer, path: Path, weights: WeightFile) -> None:
    """Writes the graph that runs once a note, at admission.

    Args:
        model: its weights rounded to fp16.
        path: the .onnx file.
        weights: the model's weights.
    """
    batch = {0: torch.export.Dim("batch")}
    program = export_program(
        ConditionGraph(model),
        (torch.zeros(2, 2), torch.full((2,), 60), torch.full((2,), 100.0)),
        input_names=["timbre", "pitch", "velocity"],
        output_names=kv_names("cross", model.config.n_decoder_layers),
        dynamic_shapes=(batch, batch, batch),
        opset_version=OPSET,
    )
    save_graph(program, path, weights.within("model."))
