"""The messages of page and bridge on the WebSocket: JSON in text frames, audio in binary ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from timbrel.errors import InvalidRequestError, TimbrelError, refusal
from timbrel.explore.errors import error_reply
from timbrel.explore.parameters import NOTE_FIELDS, refuse_unknown

MAX_ID = 2**32 - 1

LEAD_SECONDS = (0.02, 60.0)
"""How far ahead of real time a held note may be written."""

_ID = struct.Struct("<I")
_COMMON = frozenset({"type", "id"})
_ON_FIELDS = _COMMON | NOTE_FIELDS | {"lead", "live"}


@dataclass(frozen=True)
class NoteOn:
    """A note is to sound."""

    note_id: int
    fields: Mapping[str, Any]
    """Those of `parameters.NOTE_FIELDS` that were given; unchecked."""

    live: bool
    """Whether it is played on a keyboard: paced, and released by NoteOff. Otherwise it comes as it may."""

    lead_seconds: float | None
    """None: the server's default."""


@dataclass(frozen=True)
class NoteOff:
    """The key goes up."""

    note_id: int


@dataclass(frozen=True)
class NoteCancel:
    """Nobody listens any more."""

    note_id: int


@dataclass(frozen=True)
class Ping:
    """To be answered with the same."""

    token: Any


Message = NoteOn | NoteOff | NoteCancel | Ping


class BadMessageError(TimbrelError):
    """A message of the page that makes no sense."""

    def __init__(self, reason: str, note_id: int | None = None) -> None:
        super().__init__(reason)
        self.note_id = note_id
        """The note it is about, where it says so."""


def parse_message(text: str) -> Message:
    """Reads a message of the page.

    Raises:
        BadMessageError: it is no JSON object, or not one that this module knows.
    """
    given = _object(text)
    kind = given.get("type")
    if kind == "ping":
        return Ping(given.get("t"))
    note_id = _note_id(given, kind)
    try:
        match kind:
            case "on":
                refuse_unknown(given, _ON_FIELDS)
                return _note_on(note_id, given)
            case "off":
                refuse_unknown(given, _COMMON)
                return NoteOff(note_id)
            case _:
                refuse_unknown(given, _COMMON)
                return NoteCancel(note_id)
    except InvalidRequestError as error:
        raise BadMessageError(str(error), note_id) from None


def hello(sample_rate: int) -> str:
    return _text(type="hello", sample_rate=sample_rate)


def start(note_id: int, seed: int, sample_rate: int) -> str:
    return _text(type="start", id=note_id, seed=seed, sample_rate=sample_rate)


def audio(note_id: int, samples: bytes) -> bytes:
    """The id, then float32 samples, little-endian both."""
    return _ID.pack(note_id) + samples


def end(note_id: int, held_seconds: float, truncated: bool) -> str:
    return _text(type="end", id=note_id, held_seconds=held_seconds, truncated=truncated)


def error_of_note(note_id: int, error: TimbrelError) -> str:
    reply = error_reply(error)
    return _text(type="error", id=note_id, code=reply.code, message=reply.message)


def error_of_message(error: BadMessageError) -> str:
    about = {} if error.note_id is None else {"id": error.note_id}
    return _text(type="error", **about, code="invalid_request", message=str(error))


def server(is_serving: bool, message: str) -> str:
    said = {"message": message} if message else {}
    return _text(type="server", state="back" if is_serving else "away", **said)


def pong(token: Any) -> str:
    return _text(type="pong", t=token)


def _text(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadMessageError("the message is no JSON that can be read") from None
    if not isinstance(given, dict):
        raise BadMessageError("the message is no JSON object")
    return given


def _refuse_constant(name: str) -> NoReturn:
    """JSON has neither NaN nor Infinity, though Python's parser has."""
    raise ValueError(name)


def _note_id(given: Mapping[str, Any], kind: object) -> int:
    if kind not in ("on", "off", "cancel"):
        raise BadMessageError(f"type: {_shown(kind)} is none of on, off, cancel and ping")
    note_id = given.get("id")
    if not isinstance(note_id, int) or isinstance(note_id, bool) or not 1 <= note_id <= MAX_ID:
        raise BadMessageError(f"id: {_shown(note_id)} is no whole number of 1 to {MAX_ID}")
    return note_id


def _note_on(note_id: int, given: Mapping[str, Any]) -> NoteOn:
    live, lead = given.get("live", True), given.get("lead")
    if not isinstance(live, bool):
        raise refusal("live", f"{_shown(live)} is neither true nor false")
    if lead is not None and not _is_lead(lead):
        low, high = LEAD_SECONDS
        raise refusal("lead", f"{_shown(lead)} is not allowed; {low:g} to {high:g} seconds are")
    return NoteOn(note_id, {name: given[name] for name in NOTE_FIELDS & given.keys()}, live, lead)


def _is_lead(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    low, high = LEAD_SECONDS
    return low <= value <= high


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
