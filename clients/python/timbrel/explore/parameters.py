"""The fields that describe a note, as the page sends them: checked, and made into a request."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from timbrel.core.request import NoteRequest, request_to_pb
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

NOTE_FIELDS = frozenset({"x", "y", "pitch", "velocity", "seconds", "seed", "temperature", "top_k", "top_p"})

WHOLE_FIELDS = frozenset({"pitch", "velocity", "seed", "top_k"})
"""Those of them that are whole numbers."""

DEFAULT_VELOCITY = 100
DEFAULT_SECONDS = 2.0

SEED_BITS = 32
"""Of the seeds drawn here: a page's numbers hold no more than 53 exactly, and people like short ones."""


def note_request(
    fields: Mapping[str, Any], manifest: pb.Manifest, audio: pb.AudioFormat
) -> pb.GenerateRequest:
    """The request for a note. A seed is drawn where none is given; 2 seconds are the default.

    Args:
        fields: any of NOTE_FIELDS; others must not be there (`refuse_unknown`).
        audio: what the replies are to carry.

    Raises:
        InvalidRequestError: naming every field that is out of the bundle's ranges.
    """
    seconds, ranges = fields.get("seconds"), manifest.ranges
    if seconds is None:
        seconds = min(max(DEFAULT_SECONDS, ranges.seconds_min), ranges.seconds_max)
    seed = fields.get("seed")
    wanted = NoteRequest(
        timbre=(fields.get("x"), fields.get("y")),  # type: ignore[arg-type]
        pitch=fields.get("pitch"),  # type: ignore[arg-type]
        velocity=fields.get("velocity", DEFAULT_VELOCITY),
        seconds=seconds,
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        temperature=fields.get("temperature"),
        top_k=fields.get("top_k"),
        top_p=fields.get("top_p"),
    )
    request = request_to_pb(wanted, manifest)
    request.audio = audio
    return request


def refuse_unknown(given: Mapping[str, object], known: frozenset[str]) -> None:
    """
    Raises:
        InvalidRequestError: a field is there that nobody reads.
    """
    allowed = ", ".join(sorted(known))
    if unknown := [name for name in given if name not in known]:
        raise InvalidRequestError.of(
            [FieldViolation(str(name)[:40], f"is no field here; {allowed} are") for name in unknown[:5]]
        )


def read_query(
    query: Mapping[str, str],
    known: frozenset[str] = NOTE_FIELDS,
    whole: frozenset[str] = WHOLE_FIELDS,
) -> dict[str, float | int]:
    """The numbers of an address's query, whole ones for the fields of `whole`; what is empty is left out.

    Raises:
        InvalidRequestError: a field is unknown, or holds no number.
    """
    refuse_unknown(query, known)
    return {
        name: _number(name, text, int if name in whole else float) for name, text in query.items() if text
    }


def _number(name: str, text: str, kind: type[int] | type[float]) -> float | int:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise InvalidRequestError.of([FieldViolation(name, f"{text[:40]!r} is no {what}")]) from None
