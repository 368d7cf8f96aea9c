"""The ONNX graphs that take or give audio: any codec's decoder, which streams, and the timbre encoder."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_bundle.layout import CODEC_DECODER, CODEC_WEIGHTS
from timbrel_export.onnx_export import WeightFile, export_program, save_graph, save_weights
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec, Expression
from timbrel_training.timbre.encoder import TimbreEncoder


class DecoderGraph(nn.Module):
    """codes [B, T, K], an expression and the state -> audio [B, T * hop_length] and the state after."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec
        self.names = list(codec.initial_state(1))

    def forward(
        self, codes: Tensor, seed: Tensor, cents: Tensor, level_db: Tensor, state: list[Tensor]
    ) -> tuple[Tensor, ...]:
        before = dict(zip(self.names, state, strict=True))
        audio, after = self.codec.decode_chunk(codes, Expression(seed, cents, level_db), before)
        return audio, *after.values()


def export_codec(codec: Codec, directory: Path) -> pb.CodecSpec:
    """Writes codec_decoder.onnx, codec.safetensors into `directory`; describes them.

    The weights of `codec` must already be rounded to fp16 (`round_to_half`): the file holds them so, all of
    them, and the codec's config, since whoever codes notes makes it again in PyTorch.
    """
    codec = copy.deepcopy(codec).eval()
    about = {"id": codec.id, "config": dataclasses.asdict(codec.config)}
    weights = save_weights(codec, directory / CODEC_WEIGHTS, about).within("codec.")
    _export_decoder(codec, directory / CODEC_DECODER, weights)
    return describe_codec(codec)


def export_timbre_encoder(encoder: TimbreEncoder, path: Path, weights: WeightFile) -> None:
    """Writes the stage-1 encoder, its weights rounded to fp16, its front end included, as one graph."""
    batch, samples = torch.export.Dim("batch"), torch.export.Dim("samples", min=2)
    program = export_program(
        encoder,
        (torch.zeros(2, 999), torch.tensor([999, 500])),
        input_names=["audio", "n_samples"],
        output_names=["timbre", "embedding"],
        dynamic_shapes=({0: batch, 1: samples}, {0: batch}),
    )
    save_graph(program, path, weights)


def describe_codec(codec: Codec) -> pb.CodecSpec:
    """The manifest's account of the codec."""
    return pb.CodecSpec(
        id=codec.id,
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        delay_samples=codec.delay_samples,
        lead_frames=codec.lead_frames,
        bends=codec.bends,
        moves=codec.moves,
        code_bases=codec.code_bases,
        silence=codec.silence().tolist(),
        hold=_hold(codec),
        decoder_state=[
            pb.StateTensor(name=name, shape=tensor.shape[1:], dtype=str(tensor.dtype).removeprefix("torch."))
            for name, tensor in codec.initial_state(1).items()
        ],
    )


def _hold(codec: Codec) -> list[int]:
    """CodecSpec's hold: the codec's code for it in all codebooks that silence leaves as they are."""
    if codec.hold is None:
        return []
    return [
        codec.hold if silent == codec.hold else codec.codebook_size for silent in codec.silence().tolist()
    ]


def _export_decoder(codec: Codec, path: Path, weights: WeightFile) -> None:
    state = codec.initial_state(2)
    batch, frames = torch.export.Dim("batch"), torch.export.Dim("frames")
    codes = codec.silence().expand(2, 3, -1).contiguous()
    program = export_program(
        DecoderGraph(codec),
        (codes, *Expression.of(codes), list(state.values())),
        input_names=["codes", *Expression._fields, *state],
        output_names=["audio", *(f"{name}_out" for name in state)],
        dynamic_shapes=(
            {0: batch, 1: frames},
            {0: batch},
            {0: batch, 1: frames},
            {0: batch, 1: frames},
            [{0: batch} for _ in state],
        ),
    )
    save_graph(program, path, weights)
