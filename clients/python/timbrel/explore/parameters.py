"""Checks the fields that describe a note, as the page sends them, and makes them into a request."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from timbrel.core.model import SamplingDefaults
from timbrel.core.request import NoteRequest, request_to_pb
from timbrel.errors import FieldViolation, InvalidRequestError, refusal
from timbrel_bundle.request_fields import FIELD, REQUEST_FIELDS, SEED_BITS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Kind = type[int] | type[float]

KINDS: dict[str, Kind] = {"x": float, "y": float} | {field.name: field.kind for field in REQUEST_FIELDS}
"""Every field by name: whether it is a whole number."""

NOTE_FIELDS = frozenset(KINDS)


def note_request(
    fields: Mapping[str, Any], manifest: pb.Manifest, audio: pb.AudioFormat
) -> pb.GenerateRequest:
    """Makes the request for a note. A seed is drawn where none is given; 2 seconds are the default.

    Args:
        fields: any of NOTE_FIELDS; others must not be there (`refuse_unknown`).
        audio: what the replies are to carry.

    Raises:
        InvalidRequestError: naming every field that is out of the bundle's ranges.
    """
    given: dict[str, Any] = {field.name: fields.get(field.name) for field in REQUEST_FIELDS}
    if "velocity" not in fields:
        given["velocity"] = FIELD["velocity"].default
    if given["seconds"] is None:
        low, high = FIELD["seconds"].range(manifest.ranges)
        given["seconds"] = min(max(FIELD["seconds"].default or low, low), high)
    if given["seed"] is None:
        given["seed"] = secrets.randbits(SEED_BITS)
    timbre: Any = (fields.get("x"), fields.get("y"))
    request = request_to_pb(NoteRequest(timbre, **given), manifest)
    request.audio = audio
    return request


def describe_fields(ranges: pb.RequestRanges, sampling: SamplingDefaults) -> list[dict[str, Any]]:
    """Lists a request's numbers for the page: name, kind, range and default of each.

    Args:
        sampling: what the server draws with where the caller leaves it open.
    """
    described: list[dict[str, Any]] = []
    for field in REQUEST_FIELDS:
        low, high = field.range(ranges)
        default = getattr(sampling, field.name) if field.sampling else field.default
        kind = "whole" if field.kind is int else "real"
        described.append({"name": field.name, "kind": kind, "low": low, "high": high, "default": default})
    return described


def refuse_unknown(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Checks that every field is known.

    Raises:
        InvalidRequestError: a field is there that nobody reads.
    """
    allowed = ", ".join(sorted(known))
    if unknown := [name for name in given if name not in known]:
        raise InvalidRequestError.of(
            [FieldViolation(str(name)[:40], f"is no field here; {allowed} are") for name in unknown[:5]]
        )


def read_query(query: Mapping[str, str], kinds: Mapping[str, Kind] = KINDS) -> dict[str, float | int]:
    """Reads the numbers of an address's query; what is empty is left out.

    Args:
        kinds: of the fields that may be there, by name.

    Raises:
        InvalidRequestError: a field is unknown, or holds no number.
    """
    refuse_unknown(query, frozenset(kinds))
    return {name: _number(name, text, kinds[name]) for name, text in query.items() if text}


def shown(value: object) -> str:
    """Writes a value as JSON has it, shortened, for messages."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _number(name: str, text: str, kind: Kind) -> float | int:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise refusal(name, f"{text[:40]!r} is no {what}") from None
