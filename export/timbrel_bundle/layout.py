"""The names of a bundle's files."""

from __future__ import annotations

FORMAT_VERSION = 1
"""Version of the bundle's layout that this code writes and reads."""

MANIFEST = "manifest.json"
TIMBRE_MAP = "timbre_map.json"

CONDITION_ENCODER = "condition_encoder.onnx"
DECODER_STEP = "decoder_step.onnx"
"""One step of the decoder, its attention as com.microsoft GroupQueryAttention."""

DECODER_STEP_PORTABLE = "decoder_step_portable.onnx"
"""The same in standard operators (TensorScatter and Attention, opset 24)."""

CODEC_ENCODER = "codec_encoder.onnx"
CODEC_DECODER = "codec_decoder.onnx"
TIMBRE_ENCODER = "timbre_encoder.onnx"

GRAPHS = (
    CONDITION_ENCODER,
    DECODER_STEP,
    DECODER_STEP_PORTABLE,
    CODEC_ENCODER,
    CODEC_DECODER,
    TIMBRE_ENCODER,
)

MODEL_WEIGHTS = "model.safetensors"
"""Weights of the condition encoder and the decoder."""

CODEC_WEIGHTS = "codec.safetensors"
TIMBRE_WEIGHTS = "timbre.safetensors"
WEIGHTS = (MODEL_WEIGHTS, CODEC_WEIGHTS, TIMBRE_WEIGHTS)

MODEL_CARD = "MODEL_CARD.md"
MAP_PICTURE = "timbre_map.svg"
"""For people: in the bundle's folder, but no part of what its hash names."""

CLIENT_FETCHABLE = frozenset(
    {TIMBRE_MAP, CODEC_ENCODER, CODEC_DECODER, CODEC_WEIGHTS, TIMBRE_ENCODER, TIMBRE_WEIGHTS}
)
"""What a server hands to its clients. Never the model."""


def state_output(name: str) -> str:
    """Name of the graph output that carries on the state given as the input `name`."""
    return f"{name}_out"
