"""Messages that hypothesis makes up: any values, valid but for a field or two, or no messages at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import strategies as st

from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

DEPTH = 3
"""Messages within messages."""


@dataclass(frozen=True)
class Method:
    """An rpc, and a request that it takes."""

    path: str
    valid: Message
    streams_in: bool = False
    streams_out: bool = False


NOTE = pb.GenerateRequest(timbre=pb.Timbre(x=0.1, y=0.2), pitch=60, velocity=100, seconds=0.1, seed=1)
_T, _I = "/timbrel.v1.Synthesizer/", "/inference.GRPCInferenceService/"


def _infer_request() -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name="tiny", id="1")
    for name, datatype, shape, raw in (
        ("TIMBRE", "FP32", (1, 2), b"\0\0\0\0\0\0\0\0"),
        ("PITCH", "INT32", (1, 1), b"\x3c\0\0\0"),
        ("VELOCITY", "INT32", (1, 1), b"\x64\0\0\0"),
        ("SECONDS", "FP32", (1, 1), b"\0\0\0\x3e"),
        ("SEED", "UINT64", (1, 1), b"\1\0\0\0\0\0\0\0"),
    ):
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(raw)
    return request


METHODS = (
    Method(_T + "Generate", NOTE, streams_out=True),
    Method(_T + "GenerateBatch", pb.GenerateBatchRequest(id=1, note=NOTE), True, True),
    Method(
        _T + "Play",
        pb.PlayRequest(id=1, note_on=pb.NoteOn(note=NOTE, lead_seconds=60.0)),
        True,
        True,
    ),
    Method(_T + "Locate", pb.LocateRequest(audio=b"\0\0\0\x3f\0\0\0\xbf" * 4500, sample_rate=48000)),
    Method(_T + "GetModel", pb.GetModelRequest(bundle="tiny")),
    Method(_T + "GetTimbreMap", pb.GetTimbreMapRequest(bundle="tiny")),
    Method(_T + "GetFile", pb.GetFileRequest(name="timbre_map.json"), streams_out=True),
    Method(_I + "ServerLive", oip.ServerLiveRequest()),
    Method(_I + "ServerReady", oip.ServerReadyRequest()),
    Method(_I + "ModelReady", oip.ModelReadyRequest(name="tiny")),
    Method(_I + "ServerMetadata", oip.ServerMetadataRequest()),
    Method(_I + "ModelMetadata", oip.ModelMetadataRequest(name="tiny")),
    Method(_I + "ModelInfer", _infer_request()),
    Method(_I + "ModelStreamInfer", _infer_request(), True, True),
    Method("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest()),
    Method(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest(list_services="*"),
        True,
        True,
    ),
)

_TEXT = st.one_of(
    st.sampled_from(
        ["", "tiny", "PITCH", "FP32", "../../etc/passwd", "\0", "%s%n", "é" * 3000, "x" * 100_000]
    ),
    st.text(max_size=20),
)
# Training sets the processor to flush subnormal numbers to zero, for the rest of the process: hypothesis then
# refuses to draw any, so there is one of each size by name.
_NUMBERS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.one_of(st.integers(-2, 70), st.integers(-(2**63), 2**63 - 1)),
    FieldDescriptor.CPPTYPE_UINT32: st.one_of(st.integers(0, 130), st.integers(0, 2**32 - 1)),
    FieldDescriptor.CPPTYPE_UINT64: st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)),
    FieldDescriptor.CPPTYPE_DOUBLE: st.one_of(st.floats(allow_subnormal=False), st.just(5e-324)),
    FieldDescriptor.CPPTYPE_FLOAT: st.one_of(st.floats(width=32, allow_subnormal=False), st.just(1e-45)),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.one_of(st.integers(0, 5), st.integers(-(2**31), 2**31 - 1)),
}


def bodies(method: Method) -> st.SearchStrategy[list[bytes]]:
    """What to send in one call: one body, or several on a stream."""
    one = st.one_of(
        st.composite(_spoilt)(method.valid),
        st.composite(_made_up)(type(method.valid), 0).map(lambda message: message.SerializeToString()),
        st.composite(_cut)(method.valid),
        st.binary(max_size=200),
    )
    return st.lists(one, max_size=6) if method.streams_in else one.map(lambda body: [body])


def _spoilt(draw: Callable[..., Any], valid: Message) -> bytes:
    """A valid message, but for a field or two."""
    message = type(valid)()
    message.CopyFrom(valid)
    if fields := list(message.DESCRIPTOR.fields):
        for field in draw(st.lists(st.sampled_from(fields), max_size=2)):
            _set(draw, message, field, DEPTH - 1)
    return message.SerializeToString()


def _cut(draw: Callable[..., Any], valid: Message) -> bytes:
    """A valid message that breaks off, and goes on with anything."""
    body = valid.SerializeToString()
    return body[: draw(st.integers(0, len(body)))] + draw(st.binary(max_size=10))


def _made_up(draw: Callable[..., Any], kind: type[Message], depth: int) -> Message:
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _set(draw, message, field, depth)
    return message


def _set(draw: Callable[..., Any], message: Any, field: FieldDescriptor, depth: int) -> None:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if hasattr(value, "append") and not isinstance(value, (bytes, str)):
        for _ in range(draw(st.integers(0, 3))):
            if field.message_type is not None:
                value.append(_made_up(draw, field.message_type._concrete_class, depth + 1))
            else:
                value.append(_scalar(draw, field))
    elif field.message_type is None:
        setattr(message, field.name, _scalar(draw, field))
    elif depth < DEPTH:
        value.SetInParent()
        value.MergeFrom(_made_up(draw, type(value), depth + 1))


def _scalar(draw: Callable[..., Any], field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return draw(st.binary(max_size=64)) if field.type == FieldDescriptor.TYPE_BYTES else draw(_TEXT)
    return draw(_NUMBERS[field.cpp_type])
