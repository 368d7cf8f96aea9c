"""What the blocking and the asynchronous `generate_many` share: their arguments, and what they yield."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from timbrel.core.batch import DEFAULT_IN_FLIGHT, Batch, Result
from timbrel.core.reply import WrittenNote
from timbrel.core.request import NoteRequest
from timbrel.core.retry import Patience
from timbrel.errors import FieldViolation, InvalidRequestError, TimbrelError
from timbrel.note import Note
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

OnError = Literal["raise", "return"]
"""What to do with a note that cannot be had: end there, or hand out its error in its place."""

MakeNote = Callable[[NoteRequest, WrittenNote], Note]


def check_many(on_error: str, max_in_flight: int | None) -> None:
    """
    Raises:
        InvalidRequestError: one of the arguments is out of range.
    """
    if on_error not in ("raise", "return"):
        raise _refusal("on_error", f"must be 'raise' or 'return', got {on_error!r}")
    if max_in_flight is not None and max_in_flight < 1:
        raise _refusal("max_in_flight", f"must be 1 or more, got {max_in_flight}")


def make_batch(
    model: pb.GetModelResponse,
    timbre_map: pb.TimbreMap,
    patience: Patience,
    max_in_flight: int | None,
    ordered: bool,
) -> Batch:
    """
    Args:
        max_in_flight: None: as many as the server takes of one stream.
    """
    in_flight = max_in_flight or model.engine.max_in_flight or DEFAULT_IN_FLIGHT
    return Batch(model.manifest, timbre_map, patience, in_flight, ordered=ordered)


def handed_out(result: Result, ordered: bool, on_error: OnError, make_note: MakeNote) -> Any:
    """What `generate_many` yields for a result.

    Raises:
        TimbrelError: the result is one, and errors are to be raised.
    """
    made: Note | TimbrelError
    if isinstance(result.outcome, TimbrelError):
        if on_error == "raise":
            raise result.outcome
        made = result.outcome
    else:
        made = make_note(result.request, result.outcome)
    return made if ordered else (result.index, made)


def size_of(requests: object) -> int | None:
    """How many requests there are; None where that shows only in the end."""
    try:
        return len(requests)  # type: ignore[arg-type]
    except TypeError:
        return None


def _refusal(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(field, description)])
