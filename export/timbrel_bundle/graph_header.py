"""Reads the inputs, outputs and external weights that an .onnx file declares, without the onnx package.

The few fields needed are declared here under ONNX's own numbers (onnx.proto, ModelProto and down); protobuf
skips the rest. They are all ways to a tensor: onnxruntime reads the values of an external one from a file
that the graph names, so only those may be external whose values it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

_Field = descriptor_pb2.FieldDescriptorProto

_MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    # message: {field: (number, scalar type or message, repeated)}
    "Model": {
        "graph": (7, "Graph", False),
        "training_info": (20, "Training", True),
        "functions": (25, "Function", True),
    },
    "Training": {"initialization": (1, "Graph", False), "algorithm": (2, "Graph", False)},
    "Function": {"node": (7, "Node", True), "attribute_proto": (11, "Attribute", True)},
    "Graph": {
        "node": (1, "Node", True),
        "initializer": (5, "Tensor", True),
        "input": (11, "Value", True),
        "output": (12, "Value", True),
        "sparse_initializer": (15, "Sparse", True),
    },
    "Node": {"attribute": (5, "Attribute", True)},
    "Attribute": {
        "t": (5, "Tensor", False),
        "g": (6, "Graph", False),
        "tensors": (10, "Tensor", True),
        "graphs": (11, "Graph", True),
        "sparse_tensor": (22, "Sparse", False),
        "sparse_tensors": (23, "Sparse", True),
    },
    "Sparse": {"values": (1, "Tensor", False), "indices": (2, "Tensor", False)},
    "Value": {"name": (1, _Field.TYPE_STRING, False)},
    "Tensor": {
        "dims": (1, _Field.TYPE_INT64, True),
        "data_type": (2, _Field.TYPE_INT32, False),
        "name": (8, _Field.TYPE_STRING, False),
        "external_data": (13, "Entry", True),
        "data_location": (14, _Field.TYPE_INT32, False),
    },
    "Entry": {"key": (1, _Field.TYPE_STRING, False), "value": (2, _Field.TYPE_STRING, False)},
}

_EXTERNAL = 1
"""TensorProto.DataLocation.EXTERNAL."""

DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    6: "int32",
    7: "int64",
    10: "float16",
    11: "float64",
}
"""TensorProto.DataType of weights that may be external, as numpy names it."""


@dataclass(frozen=True)
class ExternalWeight:
    """An initializer whose values live in another file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """numpy's name of the type the graph computes in; the file may hold it at lower precision."""

    location: str
    """Name of the file, as the graph gives it."""


@dataclass(frozen=True)
class GraphHeader:
    """The names a graph declares."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    external_weights: tuple[ExternalWeight, ...]


def parse_graph_header(data: bytes) -> GraphHeader:
    """Reads the header of a serialised ONNX model. Raises ValueError: the bytes are no ONNX model, an
    external weight has a type that is not among DTYPES, or something else than a weight of the main graph is
    external."""
    model: Any = _model_class()()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ValueError("is not a whole ONNX file") from None
    if not model.graph.output:
        raise ValueError("holds no ONNX graph")
    weights = model.graph.initializer
    for part in (*model.graph.node, *model.graph.sparse_initializer, *model.functions, *model.training_info):
        for tensor in filter(_is_external, _tensors(part)):
            raise ValueError(f"takes the tensor {tensor.name!r} from a file, which is for its weights only")
    return GraphHeader(
        inputs=tuple(value.name for value in model.graph.input),
        outputs=tuple(value.name for value in model.graph.output),
        external_weights=tuple(_external_weight(tensor) for tensor in weights if _is_external(tensor)),
    )


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor within a message: of attributes, of the graphs that branch off there, and so on."""
    kind = message.DESCRIPTOR.name
    if kind == "Tensor":
        yield message
        return
    for field, value in message.ListFields():
        _, inner, repeated = _MESSAGES[kind][field.name]
        if isinstance(inner, str):
            for part in value if repeated else (value,):
                yield from _tensors(part)


def _is_external(tensor: Any) -> bool:
    return tensor.data_location == _EXTERNAL or len(tensor.external_data) > 0


def _external_weight(tensor: Any) -> ExternalWeight:
    if tensor.data_type not in DTYPES:
        raise ValueError(
            f"declares the weight {tensor.name!r} with ONNX type {tensor.data_type}, which is not supported"
        )
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    return ExternalWeight(tensor.name, tuple(tensor.dims), DTYPES[tensor.data_type], location)


@functools.cache
def _model_class() -> type[Message]:
    """The class of the message Model, in a pool of its own: it cannot clash with the onnx package's."""
    package = "timbrel_bundle.onnx"
    file = descriptor_pb2.FileDescriptorProto(name="graph_header.proto", package=package, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind, repeated) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = _Field.Type.ValueType(kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Model"))
