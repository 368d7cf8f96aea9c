"""The names of a bundle's files."""

from __future__ import annotations

FORMAT_VERSION = 2
"""Version of the bundle's layout that this code writes and reads."""

MANIFEST = "manifest.json"
TIMBRE_MAP = "timbre_map.json"
TIMBRE_REFERENCES = "timbre_references.json"
"""By what instruments are recognised; bundles of an older timbrel lack it."""

CONDITION_ENCODER = "condition_encoder.onnx"
CONDITION_ENCODER_HALF = "condition_encoder_half.onnx"
"""The same with outputs in fp16, for DECODER_STEP_HALF."""

DECODER_STEP = "decoder_step.onnx"
"""One step of the decoder in onnxruntime's own operators, GroupQueryAttention among them."""

DECODER_STEP_INT8 = "decoder_step_int8.onnx"
"""The same with weights of 8 bits, which a runtime derives as it loads them."""

DECODER_STEP_HALF = "decoder_step_half.onnx"
"""The same in fp16, for CUDA."""

DECODER_STEP_PORTABLE = "decoder_step_portable.onnx"
"""The same as DECODER_STEP in standard operators (TensorScatter and Attention, opset 24)."""

CODEC_DECODER = "codec_decoder.onnx"
TIMBRE_ENCODER = "timbre_encoder.onnx"

GRAPHS = (
    CONDITION_ENCODER,
    CONDITION_ENCODER_HALF,
    DECODER_STEP,
    DECODER_STEP_INT8,
    DECODER_STEP_HALF,
    DECODER_STEP_PORTABLE,
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

CLIENT_FETCHABLE = frozenset({TIMBRE_MAP, CODEC_DECODER, CODEC_WEIGHTS, TIMBRE_ENCODER, TIMBRE_WEIGHTS})
"""The files that a server hands to its clients. The model is never among them."""


def state_output(name: str) -> str:
    """Name of the graph output that carries on the state given as the input `name`."""
    return f"{name}_out"
