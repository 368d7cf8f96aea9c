"""The bookkeeping of one Play stream: which note has which id, and whom each response of the server concerns.

Nothing here waits, sends or looks at a clock: whoever drives it sends the messages that it makes.
"""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

from timbrel.core.faults import error_from_status
from timbrel.errors import TimbrelError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Note = TypeVar("Note")
"""Stands for a note at the caller's; hashable."""


class LiveNotes(Generic[Note]):
    """The notes of a stream that have begun and not ended, each under an id of its own."""

    def __init__(self) -> None:
        # No id is used twice: the server may still speak of an earlier bearer.
        self._unused_ids = itertools.count(1)
        self._notes: dict[int, Note] = {}
        self._ids: dict[Note, int] = {}

    def note_on(self, note: Note, request: pb.GenerateRequest, lead_seconds: float | None) -> pb.PlayRequest:
        """Takes a new note; returns the message that begins it."""
        note_id = next(self._unused_ids)
        self._notes[note_id], self._ids[note] = note, note_id
        return pb.PlayRequest(id=note_id, note_on=pb.NoteOn(note=request, lead_seconds=lead_seconds))

    def note_off(self, note: Note) -> pb.PlayRequest | None:
        """The message that lets go of a note's key; None where the note has ended."""
        note_id = self._ids.get(note)
        return None if note_id is None else pb.PlayRequest(id=note_id, note_off=pb.NoteOff())

    def cancel(self, note: Note) -> pb.PlayRequest | None:
        """The message that ends a note at once; None where it has ended."""
        note_id = self._ids.get(note)
        return None if note_id is None else pb.PlayRequest(id=note_id, cancel=pb.NoteCancel())

    def bend(self, note: Note, cents: float) -> pb.PlayRequest | None:
        """The message that bends a note; None where it has ended."""
        note_id = self._ids.get(note)
        return None if note_id is None else pb.PlayRequest(id=note_id, bend=pb.Bend(cents=cents))

    def move(self, note: Note, timbre: tuple[float, float]) -> pb.PlayRequest | None:
        """The message that moves a note to another timbre; None where it has ended."""
        note_id, (x, y) = self._ids.get(note), timbre
        return (
            None if note_id is None else pb.PlayRequest(id=note_id, move=pb.Move(timbre=pb.Timbre(x=x, y=y)))
        )

    def receive(self, response: pb.PlayResponse) -> tuple[Note, pb.GenerateResponse | TimbrelError] | None:
        """The note that a response is about, and its next reply or the error that ended it.

        None where it concerns nobody: a refusal answers a message about a note that had ended by then.
        """
        event = response.WhichOneof("event")
        note = self._notes.get(response.id)
        if note is None or event == "refusal":
            return None
        if event == "error" or response.reply.finish_reason:
            del self._notes[response.id], self._ids[note]
        if event == "reply":
            return note, response.reply
        error = response.error
        return note, error_from_status(error.code, error.message, error.SerializeToString())

    def end(self) -> list[Note]:
        """Takes note that the stream has ended; returns the notes that were cut off by that."""
        cut_off = list(self._notes.values())
        self._notes.clear()
        self._ids.clear()
        return cut_off
