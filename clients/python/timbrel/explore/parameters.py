"""Checks what a page sends, the fields of a note and recordings, and makes it into requests."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel.core.location import locate_request
from timbrel.core.model import SamplingDefaults
from timbrel.core.request import NoteRequest, request_to_pb
from timbrel.errors import FieldViolation, InvalidRequestError, refusal
from timbrel_bundle.audio import MAX_SAMPLES, missing_bytes
from timbrel_bundle.request_fields import REQUEST_FIELDS, is_finite, is_unbent
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Kind = type[int] | type[float]

KINDS: dict[str, Kind] = {"x": float, "y": float} | {field.name: field.kind for field in REQUEST_FIELDS}
"""Every field by name: whether it is a whole number."""

NOTE_FIELDS = frozenset(KINDS)

MAX_RECORDING_SECONDS = 120.0
RECORDING_FORMATS = "wav, flac, ogg and mp3"


def note_request(
    fields: Mapping[str, Any], manifest: pb.Manifest, audio: pb.AudioFormat
) -> pb.GenerateRequest:
    """Makes the request for a note, of any of NOTE_FIELDS; `audio` is what the replies are to carry.

    A seed is drawn where none is given; 2 seconds are the default.

    Raises:
        InvalidRequestError: naming every field that is out of the bundle's ranges.
    """
    given: dict[str, Any] = {field.name: fields.get(field.name) for field in REQUEST_FIELDS}
    given |= {name: fields.get(name, getattr(NoteRequest, name)) for name in ("velocity", "cents")}
    if given["seconds"] is None:
        low, high = manifest.ranges.seconds_min, manifest.ranges.seconds_max
        given["seconds"] = min(max(NoteRequest.seconds, low), high)
    timbre: Any = (fields.get("x"), fields.get("y"))
    request = request_to_pb(NoteRequest(timbre, **given).seeded(), manifest)
    request.audio = audio
    if not is_unbent(cents := given["cents"]):
        for second, value in [(0.0, cents)] if is_finite(cents) else cents:
            request.cents.add(seconds=second, cents=value)
    return request


def recording_request(content: bytes, manifest: pb.Manifest) -> pb.LocateRequest:
    """Makes the request to locate a recording; see `decode_recording`."""
    samples, rate = decode_recording(content)
    return locate_request(samples, rate, manifest)


def decode_recording(content: bytes) -> tuple[npt.NDArray[np.float32], int]:
    """Decodes a file into samples [S, channels], of two minutes at most, and their rate in Hz. CPU-bound.
    Raises InvalidRequestError: the file is empty, cut short, damaged or of a kind that libsndfile does not
    read."""
    if not content:
        raise refusal("audio", "the file is empty")
    if n_missing := missing_bytes(io.BytesIO(content)):
        cut = f"the last {n_missing} bytes of its sound are missing"
        raise refusal("audio", f"the file is cut short: {cut}")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            rate = int(file.samplerate)
            n_frames = int(min(MAX_RECORDING_SECONDS * rate, MAX_SAMPLES / file.channels))
            samples = file.read(n_frames, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        reason = " ".join(str(getattr(error, "error_string", error)).split()).rstrip(".")
        formats = f"{RECORDING_FORMATS} are"
        raise refusal("audio", f"this is no audio file that can be read ({reason}); {formats}") from None
    if not samples.size:
        raise refusal("audio", "the file holds no sound")
    return samples, rate


def describe_fields(manifest: pb.Manifest, sampling: SamplingDefaults) -> list[dict[str, Any]]:
    """Lists a request's numbers for the page: name, kind, range and default of each."""
    described: list[dict[str, Any]] = []
    for field in REQUEST_FIELDS:
        low, high = (0.0, 0.0) if field.curve and not manifest.codec.bends else field.range(manifest.ranges)
        default = getattr(sampling, field.name) if field.sampling else field.default
        kind = "whole" if field.kind is int else "real"
        described.append({"name": field.name, "kind": kind, "low": low, "high": high, "default": default})
    return described


def read_object(content: bytes) -> dict[str, Any]:
    """Reads the body of a request; raises InvalidRequestError where it is no JSON object."""
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidRequestError("the body is no JSON that can be read") from None
    if not isinstance(given, dict):
        raise InvalidRequestError("the body is no JSON object")
    return given


def read_text(given: Mapping[str, object], field: str) -> str:
    """Reads a text of a request; it is empty where there is none."""
    value = given.get(field, "")
    if value is not None and not isinstance(value, str):
        raise refusal(field, f"{shown(value)} is no text")
    return value or ""


def read_switch(given: Mapping[str, object], field: str, default: bool) -> bool:
    """Reads a truth of a request; it is the default where there is none."""
    value = given.get(field, default)
    if not isinstance(value, bool):
        raise refusal(field, f"{shown(value)} is neither true nor false")
    return value


def refuse_unknown(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises InvalidRequestError where a field is there that nobody reads."""
    allowed = ", ".join(sorted(known))
    if unknown := [name for name in given if name not in known]:
        raise InvalidRequestError.of(
            [FieldViolation(str(name)[:40], f"is no field here; {allowed} are") for name in unknown[:5]]
        )


def read_query(query: Mapping[str, str]) -> dict[str, float | int]:
    """Reads the numbers of an address's query; what is empty is left out. Raises InvalidRequestError: a field
    is unknown, or holds no number."""
    refuse_unknown(query, frozenset(KINDS))
    return {name: _number(name, text, KINDS[name]) for name, text in query.items() if text}


def shown(value: object) -> str:
    """Writes a value as JSON has it, shortened, for messages."""
    try:
        text = json.dumps(value)
    except RecursionError:  # it could be read: writing goes less deep
        return "what is nested so deep"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _number(name: str, text: str, kind: Kind) -> float | int:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise refusal(name, f"{text[:40]!r} is no {what}") from None
