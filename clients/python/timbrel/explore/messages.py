"""Holds the messages of page and bridge on the WebSocket, and the buffer of those to be sent to one page.

JSON comes in text frames, audio in binary ones.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from timbrel.errors import InvalidRequestError, OverloadedError, TimbrelError, refusal
from timbrel.explore.http_common import error_reply
from timbrel.explore.parameters import NOTE_FIELDS, read_switch, refuse_unknown, shown
from timbrel_bundle.request_fields import FIELD, timbre_fault
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_ID = 2**32 - 1

LEAD_SECONDS = (0.02, 60.0)
"""How far ahead of real time a held note may be written."""

MAX_BYTES = 4 * 2**20
"""How much of a page's messages may be unsent: some 20 seconds of sound at 48 kHz."""

PATIENCE_SECONDS = 5.0
"""How long a full buffer may stay full."""

Frame = str | bytes
"""A WebSocket's text or binary frame."""

_ID = struct.Struct("<I")
_COMMON = frozenset({"type", "id"})
_FIELDS = {
    "on": _COMMON | NOTE_FIELDS | {"lead", "live"},
    "bend": _COMMON | {"cents"},
    "move": _COMMON | {"x", "y"},
}
_KINDS = ("on", "off", "cancel", "bend", "move")


@dataclass(frozen=True)
class NoteOn:
    """Says that a note is to sound."""

    note_id: int
    fields: Mapping[str, Any]
    """Those of `parameters.NOTE_FIELDS` that were given; unchecked."""

    live: bool
    """Whether it is played on a keyboard: paced, and released by NoteOff. Otherwise it comes as it may."""

    lead_seconds: float | None
    """None: the server's default."""


@dataclass(frozen=True)
class NoteChange:
    """Says what becomes of a note: it is cancelled, or, played live, let go, bent or moved."""

    note_id: int
    kind: str
    """"off", "cancel", "bend" or "move"."""

    value: Any = None
    """"bend": cents from its pitch, from now on; "move": the point (x, y) that it goes to."""


@dataclass(frozen=True)
class Ping:
    """Asks for an answer with the same token."""

    token: Any


Message = NoteOn | NoteChange | Ping


class BadMessageError(TimbrelError):
    """Is raised where a message of the page makes no sense."""

    def __init__(self, reason: str, note_id: int | None = None) -> None:
        super().__init__(reason)
        self.note_id = note_id
        """The note it is about, where it says so."""


def parse_message(text: str) -> Message:
    """Reads a message of the page; raises BadMessageError where it is none that this module knows."""
    given = _object(text)
    kind = given.get("type")
    if kind == "ping":
        return Ping(given.get("t"))
    note_id = _note_id(given, kind)
    try:
        refuse_unknown(given, _FIELDS.get(str(kind), _COMMON))
        if kind == "on":
            return _note_on(note_id, given)
        if kind == "bend":
            return NoteChange(note_id, kind, _bend_cents(given.get("cents")))
        if kind == "move":
            return NoteChange(note_id, kind, _point(given.get("x"), given.get("y")))
        return NoteChange(note_id, str(kind))
    except InvalidRequestError as error:
        raise BadMessageError(str(error), note_id) from None


def hello(bundle_hash: str, sample_rate: int, page: str) -> str:
    """Says what is served now: the bundle, and the page itself, so that an open one knows if it is old."""
    return _text(type="hello", bundle_hash=bundle_hash, sample_rate=sample_rate, page=page)


def start(note_id: int, seed: int, sample_rate: int) -> str:
    return _text(type="start", id=note_id, seed=seed, sample_rate=sample_rate)


def audio(note_id: int, samples: bytes) -> bytes:
    """Packs the id and then float32 samples, little-endian both."""
    return _ID.pack(note_id) + samples


def bent(note_id: int, cents: float, codec: pb.CodecSpec) -> str:
    """Says how far the sound that comes is bent: so many samples behind what has come it goes over to these
    cents, within so many. What comes first is bent so from its beginning."""
    return _text(type="bent", id=note_id, cents=cents, after=codec.delay_samples, within=codec.hop_length)


def release(note_id: int, held_seconds: float) -> str:
    """Says where in the note its release begins, before the sound of it comes."""
    return _text(type="release", id=note_id, held_seconds=held_seconds)


def end(note_id: int, held_seconds: float, let_go: bool) -> str:
    said = {"let_go": True} if let_go else {}
    return _text(type="end", id=note_id, held_seconds=held_seconds, **said)


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
    """Raises BadMessageError where a token could be read, but is nested too deep to be written."""
    try:
        return _text(type="pong", t=token)
    except RecursionError:
        raise BadMessageError("t: is nested too deep") from None


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
    if kind not in _KINDS:
        raise BadMessageError(f"type: {shown(kind)} is none of {', '.join(_KINDS)} and ping")
    note_id = given.get("id")
    if not isinstance(note_id, int) or isinstance(note_id, bool) or not 1 <= note_id <= MAX_ID:
        raise BadMessageError(f"id: {shown(note_id)} is no whole number of 1 to {MAX_ID}")
    return note_id


def _note_on(note_id: int, given: Mapping[str, Any]) -> NoteOn:
    live, lead = read_switch(given, "live", True), given.get("lead")
    low, high = LEAD_SECONDS
    is_number = isinstance(lead, int | float) and not isinstance(lead, bool)
    if lead is not None and not (is_number and low <= lead <= high):
        raise refusal("lead", f"{shown(lead)} is not allowed; {low:g} to {high:g} seconds are")
    return NoteOn(note_id, {name: given[name] for name in NOTE_FIELDS & given.keys()}, live, lead)


def _bend_cents(value: object) -> float:
    if (fault := FIELD["cents"].fault(value, pb.RequestRanges())) is not None or not isinstance(
        value, int | float
    ):
        raise refusal("cents", fault or f"{shown(value)} is no number")
    return float(value)


def _point(*place: Any) -> tuple[float, float]:
    if (fault := timbre_fault(place)) is not None:
        raise refusal("timbre", fault)
    x, y = place
    return float(x), float(y)


class StalledError(OverloadedError):
    """Is raised where the page takes nothing any more."""

    def __init__(self) -> None:
        super().__init__("the page does not take its sound: its notes were ended")


class SendBuffer:
    """Keeps frames in order. One task takes them; any may put some in, and waits where it is full."""

    def __init__(self, max_bytes: int = MAX_BYTES, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._patience_seconds = patience_seconds
        self._frames: deque[Frame] = deque()
        self.n_bytes = 0
        """How much waits."""
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    async def put(self, frame: Frame) -> None:
        """Adds a frame; waits where there is no room for it, and raises StalledError where none comes."""
        if not self._has_room(frame):
            try:
                async with asyncio.timeout(self._patience_seconds):
                    while not self._has_room(frame):
                        self._emptied.clear()
                        await self._emptied.wait()
            except TimeoutError:
                raise StalledError from None
        self.put_at_once(frame)

    def put_at_once(self, frame: Frame) -> None:
        """Adds a frame whether or not there is room: for the few words that must be said."""
        self._frames.append(frame)
        self.n_bytes += len(frame)
        self._filled.set()

    async def take(self) -> Frame:
        """Removes and returns the next frame; waits for it."""
        while not self._frames:
            self._filled.clear()
            await self._filled.wait()
        frame = self._frames.popleft()
        self.n_bytes -= len(frame)
        self._emptied.set()
        return frame

    def drop_sound(self) -> None:
        """Forgets the binary frames that wait."""
        self._frames = deque(frame for frame in self._frames if isinstance(frame, str))
        self.n_bytes = sum(map(len, self._frames))
        self._emptied.set()

    def _has_room(self, frame: Frame) -> bool:
        return not self._frames or self.n_bytes + len(frame) <= self._max_bytes
