"""Conversion between the tensors of a request and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timbrel_bundle.codec import Audio
from timbrel_bundle.request_fields import REQUEST_FIELDS, SAMPLING_FIELDS, Violation
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import NoteRequest
from timbrel_server.errors import InvalidRequestError, shortened
from timbrel_server.open_inference.tensors import Array, InputSpec, add_output, read_inputs
from timbrel_server.synthesizer.convert import note_request_from_pb

_SEED_TYPE = "UINT64"
_DATATYPES = {int: "INT32", float: "FP32"}

INPUTS = (
    InputSpec("TIMBRE", "FP32", width=2),
    *(
        InputSpec(
            field.name.upper(),
            _SEED_TYPE if field.name == "seed" else _DATATYPES[field.kind],
            optional=field.sampling,
        )
        for field in REQUEST_FIELDS
    ),
)
"""The point on the map, and every number of a request under its name."""

OUTPUTS = ("CODES", "LENGTHS", "AUDIO")

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
    arrays = read_inputs(request, INPUTS, most)
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


def _message(arrays: Mapping[str, Array], row: int) -> pb.GenerateRequest:
    """Asks for one note as timbrel.v1 does."""
    x, y = arrays["TIMBRE"][row].tolist()
    sampling = pb.Sampling()
    for field in SAMPLING_FIELDS:
        name = field.name.upper()
        if name in arrays:
            value = arrays[name][row, 0]
            setattr(sampling, field.name, _whole(name, row, value) if field.kind is int else value.item())
    return pb.GenerateRequest(
        timbre=pb.Timbre(x=x, y=y),
        pitch=_whole("PITCH", row, arrays["PITCH"][row, 0]),
        velocity=_whole("VELOCITY", row, arrays["VELOCITY"][row, 0]),
        # By way of its decimals: float32's 2.4 lies above 2.4, which may be the longest allowed.
        seconds=float(str(arrays["SECONDS"][row, 0])),
        seed=arrays["SEED"][row, 0].item(),
        sampling=sampling,
    )


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
