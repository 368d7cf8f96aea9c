"""The inputs and outputs that each graph of a bundle must have, and the check that a session has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnxruntime as ort

from timbrel_bundle.codec import CENTS, EXPRESSION_TYPES, LEVEL_DB, SEED, TENSOR_TYPES
from timbrel_bundle.request_fields import SAMPLING_FIELDS
from timbrel_export.errors import InterfaceError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model.config import N_CONDITION_POSITIONS, ModelConfig

FLOAT, HALF = "tensor(float)", "tensor(float16)"
INT8, INT32, INT64 = "tensor(int8)", "tensor(int32)", "tensor(int64)"

SAMPLING_INPUTS = tuple(field.name for field in SAMPLING_FIELDS)
"""The decode graph's inputs that tell how each row's tokens are drawn, in the order of `Sampling`."""

HEADER = "header"
"""What the heads read in lead frames, of models with a network that says them."""


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    type: str
    """As onnxruntime writes it, for example "tensor(float)"."""
    shape: tuple[int | None, ...]
    """None: the axis varies."""

    def __str__(self) -> str:
        axes = ", ".join("*" if size is None else str(size) for size in self.shape)
        return f"{self.name} {self.type} [{axes}]"


@dataclass(frozen=True)
class Interface:
    """All inputs and outputs of a graph, in any order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def cache_names(n_layers: int) -> list[str]:
    """`self_k_<layer>` and `self_v_<layer>` of every layer, in the order of inputs and outputs."""
    return [f"self_{part}_{layer}" for layer in range(n_layers) for part in ("k", "v")]


def memory_names(config: ModelConfig) -> list[str]:
    """Names of the tensors that a note's condition leaves for the decode graph.

    They are the condition graph's outputs, in their order, and the decode graph's inputs.
    """
    layers = range(config.n_decoder_layers)
    names = [f"cross_{part}_{layer}" for layer in layers for part in ("read", "write")]
    return [*names, HEADER] if config.has_header_network else names


def memory_shapes(config: ModelConfig) -> list[tuple[int, ...]]:
    """Shapes of the same tensors behind the batch axis."""
    n_columns = config.n_heads * N_CONDITION_POSITIONS
    shapes: list[tuple[int, ...]] = [(config.d_model, n_columns), (n_columns, config.d_model)]
    shapes *= config.n_decoder_layers
    return [*shapes, (config.lead_frames, config.d_model)] if config.has_header_network else shapes


def condition_interface(config: ModelConfig, kept: str = FLOAT) -> Interface:
    """condition_encoder.onnx, or, with memories `kept` in HALF, condition_encoder_half.onnx."""
    given = (
        Port("timbre", FLOAT, (None, 2)),
        Port("pitch", INT64, (None,)),
        Port("velocity", FLOAT, (None,)),
    )
    return Interface(given, _memories(config, kept))


def decoder_interface(config: ModelConfig, kept: str = FLOAT, cached: str = FLOAT) -> Interface:
    """The decode graphs, with memories `kept` and keys and values `cached` in these types."""
    layout = config.layout
    per_codebook = (None, layout.n_codebooks)
    cache = (None, config.n_kv_heads, config.max_positions, config.width_per_head)
    names = cache_names(config.n_decoder_layers)
    inputs = (
        Port("tokens", INT64, per_codebook),
        Port("gate", INT64, (None,)),
        Port("seqlens_k", INT32, (None,)),
        *(Port(name, cached, cache) for name in names),
        *_memories(config, kept),
        Port("uniforms", FLOAT, per_codebook),
        *(Port(field.name, INT64 if field.kind is int else FLOAT, (None,)) for field in SAMPLING_FIELDS),
    )
    outputs = (
        Port("next_tokens", INT64, per_codebook),
        Port("logits", FLOAT, (*per_codebook, layout.vocabulary_size)),
        *(Port(f"{name}_out", cached, cache) for name in names),
    )
    return Interface(inputs, outputs)


def codec_decoder_interface(codec: pb.CodecSpec) -> Interface:
    """codec_decoder.onnx."""
    state = [(each.name, TENSOR_TYPES[each.dtype], (None, *each.shape)) for each in codec.decoder_state]
    shapes = {SEED: (None,), CENTS: (None, None), LEVEL_DB: (None, None)}
    inputs = (
        Port("codes", INT64, (None, None, codec.n_codebooks)),
        *(Port(name, kind, shapes[name]) for name, kind in EXPRESSION_TYPES.items()),
        *(Port(*each) for each in state),
    )
    outputs = (Port("audio", FLOAT, (None, None)), *(Port(f"{n}_out", t, s) for n, t, s in state))
    return Interface(inputs, outputs)


def timbre_encoder_interface(embedding_width: int) -> Interface:
    """timbre_encoder.onnx."""
    inputs = (Port("audio", FLOAT, (None, None)), Port("n_samples", INT64, (None,)))
    return Interface(
        inputs, (Port("timbre", FLOAT, (None, 2)), Port("embedding", FLOAT, (None, embedding_width)))
    )


def check_interface(graph: str, session: ort.InferenceSession, expected: Interface) -> None:
    """Holds a session's inputs and outputs against the bundle format's. Raises InterfaceError: one is
    missing, unknown, or of another type or shape; the message names it."""
    _check(graph, "input", session.get_inputs(), expected.inputs)
    _check(graph, "output", session.get_outputs(), expected.outputs)


def _check(graph: str, kind: str, found: Sequence[ort.NodeArg], expected: tuple[Port, ...]) -> None:
    wanted = {port.name: port for port in expected}
    ports = {arg.name: Port(arg.name, arg.type, tuple(_axis(axis) for axis in arg.shape)) for arg in found}
    for name in wanted.keys() - ports.keys():
        raise InterfaceError(f"{graph}: {kind} {wanted[name]} is missing")
    for name, port in ports.items():
        if name not in wanted:
            raise InterfaceError(f"{graph}: {kind} {port} is none of the bundle format's")
        if port.type != wanted[name].type or not _fits(port.shape, wanted[name].shape, kind):
            raise InterfaceError(f"{graph}: {kind} {port}, expected {wanted[name]}")


def _fits(found: tuple[int | None, ...], expected: tuple[int | None, ...], kind: str) -> bool:
    """Tells whether shapes agree. Shape inference may not know an output's size: that is left to the run."""
    return len(found) == len(expected) and all(
        size == wanted or (kind == "output" and size is None)
        for size, wanted in zip(found, expected, strict=True)
    )


def _axis(axis: int | str | None) -> int | None:
    return axis if isinstance(axis, int) else None


def _memories(config: ModelConfig, kept: str) -> tuple[Port, ...]:
    named = zip(memory_names(config), memory_shapes(config), strict=True)
    return tuple(Port(name, kept, (None, *shape)) for name, shape in named)
