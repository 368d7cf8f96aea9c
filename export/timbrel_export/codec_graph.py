"""The codec's ONNX graphs: an encoder for whole recordings, a streaming decoder that carries its state."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from timbrel_export.onnx_export import export_program
from timbrel_export.weights import WeightFile, save_graph, save_weights
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec

WEIGHTS = "codec.safetensors"
ENCODER = "codec_encoder.onnx"
DECODER = "codec_decoder.onnx"
OPSET = 20


class EncoderGraph(nn.Module):
    """audio [1, S], pitch [1] -> codes [1, T, K]."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, audio: Tensor, pitch: Tensor) -> Tensor:
        return self.codec.encode(audio, pitch)


class DecoderGraph(nn.Module):
    """codes [B, T, K] and the state -> audio [B, T * hop_length] and the state after."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec
        self.names = list(codec.initial_state(1))

    def forward(self, codes: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        audio, after = self.codec.decode_chunk(codes, dict(zip(self.names, state, strict=True)))
        return audio, *after.values()


def export_codec(codec: Codec, directory: Path) -> pb.CodecSpec:
    """Writes codec_encoder.onnx, codec_decoder.onnx, codec.safetensors into `directory`; describes them.

    The weights of `codec` must already be rounded to fp16 (`round_to_half`): the files hold them so.
    """
    codec = copy.deepcopy(codec).eval()
    weights = save_weights(codec, directory / WEIGHTS).within("codec.")
    _export_decoder(codec, directory / DECODER, weights)
    _export_encoder(codec, directory / ENCODER, weights)
    return describe_codec(codec)


def describe_codec(codec: Codec) -> pb.CodecSpec:
    """The manifest's account of the codec."""
    return pb.CodecSpec(
        id=codec.id,
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        delay_samples=codec.delay_samples,
        silence=codec.silence().tolist(),
        decoder_state=[
            pb.StateTensor(name=name, shape=tensor.shape[1:], dtype=str(tensor.dtype).removeprefix("torch."))
            for name, tensor in codec.initial_state(1).items()
        ],
    )


def _export_decoder(codec: Codec, path: Path, weights: WeightFile) -> None:
    state = codec.initial_state(2)
    batch, frames = torch.export.Dim("batch"), torch.export.Dim("frames")
    codes = codec.silence().expand(2, 3, -1).contiguous()
    program = export_program(
        DecoderGraph(codec),
        (codes, list(state.values())),
        input_names=["codes", *state],
        output_names=["audio", *(f"{name}_out" for name in state)],
        dynamic_shapes=({0: batch, 1: frames}, [{0: batch} for _ in state]),
        opset_version=OPSET,
    )
    save_graph(program, path, weights)


def _export_encoder(codec: Codec, path: Path, weights: WeightFile) -> None:
    samples = torch.export.Dim("samples", min=2)
    audio = torch.randn(1, 3 * codec.hop_length + 17) * 0.1
    program = export_program(
        EncoderGraph(codec),
        (audio, torch.tensor([60.0])),
        input_names=["audio", "pitch"],
        output_names=["codes"],
        dynamic_shapes=({1: samples}, None),
        opset_version=OPSET,
    )
    save_graph(program, path, weights)
