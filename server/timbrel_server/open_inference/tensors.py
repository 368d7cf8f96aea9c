"""The tensors of a request, and the notes that they ask for: read, checked, and written back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel_bundle.codec import Audio
from timbrel_bundle.request_fields import REQUEST_FIELDS, SAMPLING_FIELDS, Violation
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import NoteRequest
from timbrel_server.errors import InvalidRequestError, shortened
from timbrel_server.synthesizer.convert import note_request_from_pb

Array: TypeAlias = npt.NDArray[Any]

_DTYPES = {"FP32": "<f4", "INT32": "<i4", "UINT16": "<u2", "UINT64": "<u8"}
"""The protocol's data types in use here, as numpy's."""

_CONTENTS = {"FP32": "fp32_contents", "INT32": "int_contents", "UINT64": "uint64_contents"}
"""The fields where InferTensorContents has elements of a data type."""


@dataclass(frozen=True)
class InputSpec:
    """A tensor [B, width] that a model takes."""

    name: str
    datatype: str
    width: int = 1
    optional: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape as metadata tells it: -1 for B."""
        return (-1, self.width)


_SEED_TYPE = "UINT64"
_DATATYPES = {int: "INT32", float: "FP32"}

DEFAULTED = ("velocity", "seconds")
"""Numbers of a note that may be left out, here as in timbrel.v1."""

INPUTS = (
    InputSpec("TIMBRE", "FP32", width=2),
    *(
        InputSpec(
            field.name.upper(),
            _SEED_TYPE if field.name == "seed" else _DATATYPES[field.kind],
            optional=not field.required or field.name in DEFAULTED,
        )
        for field in REQUEST_FIELDS
    ),
)
"""The point on the map, and every number of a request under its name; CENTS, one a note, bends AUDIO."""

OUTPUTS = ("CODES", "LENGTHS", "AUDIO")


def output_specs(manifest: pb.Manifest) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, data type and shape of each tensor that a model gives."""
    codes = (-1, -1, manifest.codec.n_codebooks)
    return [("CODES", "UINT16", codes), ("LENGTHS", "INT32", (-1,)), ("AUDIO", "FP32", (-1, -1))]


Codes = npt.NDArray[np.uint16]
"""[frames, codebooks]"""


@dataclass(frozen=True)
class WantedOutputs:
    """The outputs that a request asks for."""

    codes: bool
    audio: bool

    @classmethod
    def by(cls, request: oip.ModelInferRequest) -> WantedOutputs:
        """Reads them. Raises InvalidRequestError where it asks for what there is not."""
        names = {output.name for output in request.outputs}
        if unknown := sorted(names.difference(OUTPUTS)):
            known = ", ".join(OUTPUTS)
            raise InvalidRequestError([("outputs", f"{shortened(unknown[0])!r} is none; there are {known}")])
        return cls(codes="CODES" in names or "AUDIO" not in names, audio="AUDIO" in names)


def read_notes(request: oip.ModelInferRequest, manifest: pb.Manifest, most: int) -> list[NoteRequest]:
    """Reads the notes that a request asks for, `most` of them, each checked against the bundle's ranges.

    Raises:
        InvalidRequestError: naming every tensor, and the row in it, that is out of range.
    """
    arrays = _read_inputs(request, INPUTS, most)
    notes: list[NoteRequest] = []
    faults: list[Violation] = []
    for row in range(len(arrays["TIMBRE"])):
        try:
            notes.append(note_request_from_pb(_message(arrays, row), manifest))
        except InvalidRequestError as error:
            faults += [(f"{_tensor(field)}[{row}]", text) for field, text in error.violations]
    if faults:
        raise InvalidRequestError(faults)
    return notes


def count_notes(request: oip.ModelInferRequest, most: int) -> int:
    """Counts the notes that a request asks for, `most` at most, before any of it is checked."""
    first = request.inputs[0].shape if request.inputs else ()
    return min(max(1, first[0] if first else 1), most)


def write_notes(
    response: oip.ModelInferResponse,
    codes: Sequence[Codes] | None,
    audio: Sequence[Audio] | None,
    lengths: Sequence[int],
) -> None:
    """Adds notes to a response as its outputs.

    Args:
        codes: of each note; None where they are not wanted.
        audio: [samples], likewise.
        lengths: frames of each note.
    """
    if codes is not None:
        add_output(response, "CODES", "UINT16", _padded(codes))
    if audio is not None:
        add_output(response, "AUDIO", "FP32", _padded(audio))
    add_output(response, "LENGTHS", "INT32", np.array(lengths))


def codes_array(codes: pb.Codes, n_codebooks: int) -> Codes:
    """Returns [frames, codebooks] of a reply's codes, which may be unset."""
    return np.frombuffer(codes.data, "<u2").reshape(codes.n_frames, n_codebooks)


def add_output(response: oip.ModelInferResponse, name: str, datatype: str, array: Array) -> None:
    """Appends a tensor to a response."""
    response.outputs.add(name=name, datatype=datatype, shape=array.shape)
    response.raw_output_contents.append(np.ascontiguousarray(array, _DTYPES[datatype]).tobytes())


def _message(arrays: Mapping[str, Array], row: int) -> pb.GenerateRequest:
    """Asks for one note as timbrel.v1 does."""
    x, y = arrays["TIMBRE"][row].tolist()
    sampling = pb.Sampling()
    for field in SAMPLING_FIELDS:
        name = field.name.upper()
        if name in arrays:
            value = arrays[name][row, 0]
            setattr(sampling, field.name, _whole(name, row, value) if field.kind is int else value.item())
    bent = float(arrays["CENTS"][row, 0]) if "CENTS" in arrays else 0.0
    note = pb.GenerateRequest(
        cents=[pb.CentsPoint(cents=bent)] if bent else (),
        audio=pb.AUDIO_FORMAT_FLOAT32,
        timbre=pb.Timbre(x=x, y=y),
        pitch=_whole("PITCH", row, arrays["PITCH"][row, 0]),
        sampling=sampling,
    )
    if "VELOCITY" in arrays:
        note.velocity = _whole("VELOCITY", row, arrays["VELOCITY"][row, 0])
    if "SECONDS" in arrays:
        # By way of its decimals: float32's 2.4 lies above 2.4, which may be the longest allowed.
        note.seconds = float(str(arrays["SECONDS"][row, 0]))
    if "SEED" in arrays:
        note.seed = arrays["SEED"][row, 0].item()
    return note


def _whole(name: str, row: int, value: np.int32) -> int:
    """Reads a whole number. Raises InvalidRequestError below 0, which timbrel.v1 cannot say."""
    if value < 0:
        raise InvalidRequestError([(name, f"{value} is out of range; it must not be below 0")])
    return int(value)


def _tensor(field: str) -> str:
    """Returns the tensor that holds a field: `sampling.top_k` is in TOP_K."""
    return field.rpartition(".")[2].upper()


def _padded(rows: Sequence[Array]) -> Array:
    """Returns [B, longest, ...], with zeros behind the shorter ones."""
    longest = max(len(row) for row in rows)
    padded = np.zeros((len(rows), longest, *rows[0].shape[1:]), rows[0].dtype)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _read_inputs(
    request: oip.ModelInferRequest, specs: Sequence[InputSpec], most_rows: int
) -> Mapping[str, Array]:
    """Reads the tensors of a request by name, [B, width] each, all of one B.

    Raises:
        InvalidRequestError: naming every tensor that is unknown, missing, or of another type or size.
    """
    by_name = {spec.name: spec for spec in specs}
    faults = list(_naming_faults([tensor.name for tensor in request.inputs], by_name))
    arrays: dict[str, Array] = {}
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        faults.append(("raw_input_contents", f"{len(raw)} are given for {len(request.inputs)} inputs"))
    elif not faults:
        n_rows = request.inputs[0].shape[0] if request.inputs[0].shape else 0
        for index, tensor in enumerate(request.inputs):
            spec = by_name[tensor.name]
            elements = raw[index] if raw else None
            fault = _shape_fault(tensor, spec, n_rows, most_rows) or _size_fault(
                tensor, spec, elements, n_rows
            )
            if fault:
                faults.append((tensor.name, fault))
            else:
                arrays[tensor.name] = _to_array(tensor, spec, elements)
    if faults:
        raise InvalidRequestError(faults)
    return arrays


def _naming_faults(given: Sequence[str], specs: Mapping[str, InputSpec]) -> Iterator[Violation]:
    for name, count in Counter(given).items():
        if name not in specs:
            yield "inputs", f"{shortened(name)!r} is no input; there are {', '.join(specs)}"
        elif count > 1:
            yield name, "is given more than once"
    for spec in specs.values():
        if not spec.optional and spec.name not in given:
            yield spec.name, f"is missing; {spec.datatype} [B, {spec.width}] is needed"


def _shape_fault(
    tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, n_rows: int, most_rows: int
) -> str | None:
    if tensor.datatype != spec.datatype:
        return f"is of type {shortened(tensor.datatype)!r}; {spec.datatype} is needed"
    if len(tensor.shape) != 2 or tensor.shape[1] != spec.width:
        shown = shortened(str(list(tensor.shape[:8])))
        return f"is of shape {shown}; [B, {spec.width}] is needed"
    if tensor.shape[0] != n_rows or not 1 <= n_rows <= most_rows:
        return f"has {tensor.shape[0]} rows; 1 to {most_rows} are allowed, as many as the other inputs have"
    return None


def _size_fault(
    tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, raw: bytes | None, n_rows: int
) -> str | None:
    n_elements = n_rows * spec.width
    if raw is not None:
        n_bytes = n_elements * np.dtype(_DTYPES[spec.datatype]).itemsize
        return None if len(raw) == n_bytes else f"has {len(raw)} bytes; {n_bytes} are needed"
    given = len(getattr(tensor.contents, _CONTENTS[spec.datatype]))
    return None if given == n_elements else f"has {given} elements; {n_elements} are needed"


def _to_array(tensor: oip.ModelInferRequest.InferInputTensor, spec: InputSpec, raw: bytes | None) -> Array:
    dtype = _DTYPES[spec.datatype]
    if raw is not None:
        return np.frombuffer(raw, dtype).reshape(-1, spec.width)
    elements = getattr(tensor.contents, _CONTENTS[spec.datatype])
    return np.array(elements, dtype).reshape(-1, spec.width)
