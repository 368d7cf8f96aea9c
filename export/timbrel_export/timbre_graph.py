"""The timbre encoder as an ONNX graph: a note's codes in, its point on the timbre map out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_export.onnx_export import export_program
from timbrel_export.weights import WeightFile, save_graph
from timbrel_training.codec.interface import Codec

OPSET = 20
"""Any that has LayerNormalization and Gelu."""


class TimbreGraph(nn.Module):
    """codes [B, T, K], n_frames [B] -> timbre [B, 2] in the unit disc; later frames are padding."""

    def __init__(self, codec: Codec, encoder: nn.Module) -> None:
        super().__init__()
        self.codec = codec
        self.encoder = encoder

    def forward(self, codes: Tensor, n_frames: Tensor) -> Tensor:
        return self.encoder(self.codec.latents(codes), n_frames)


def export_timbre_encoder(
    codec: Codec, encoder: nn.Module, path: Path, codec_weights: WeightFile, weights: WeightFile
) -> None:
    """Writes the codec's latents and the stage-1 encoder as one graph.

    Args:
        codec: its weights rounded to fp16.
        encoder: latents [B, T, D], n_frames [B] -> points [B, 2]; its weights rounded to fp16.
        path: the .onnx file.
        codec_weights: the codec's weights.
        weights: the encoder's weights.
    """
    batch, frames = torch.export.Dim("batch"), torch.export.Dim("frames")
    codes = torch.zeros(2, 7, codec.n_codebooks, dtype=torch.int64)
    program = export_program(
        TimbreGraph(codec, encoder),
        (codes, torch.tensor([7, 5])),
        input_names=["codes", "n_frames"],
        output_names=["timbre"],
        dynamic_shapes=({0: batch, 1: frames}, {0: batch}),
        opset_version=OPSET,
    )
    save_graph(program, path, codec_weights.within("codec."), weights.within("encoder."))
