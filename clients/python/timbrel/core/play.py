"""The bookkeeping of one Play stream: which note has which id, and whom each response of the server concerns.

Nothing here waits, sends or looks at a clock: whoever drives it sends the messages that it makes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from timbrel.core.faults import error_from_status
from timbrel.core.reply import Codes
from timbrel.errors import TimbrelError
from timbrel_bundle.manifest import held_frames
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Note = TypeVar("Note")
"""Stands for a note at the caller's; hashable."""


class WrittenAhead:
    """Tells which frames of a live note are left out once its key goes up.

    A server writes ahead of real time; without this, what it had written with the key down would be heard
    first, and the release after it. Left out is what nobody has read by then, and would be heard only after
    the key went up. Frames that say more than how high and that the key is held are all read.

    A timbre that moves comes in rows, and a codec tells them by counting frames: before one that says more,
    the count is made what it would be had nothing been left out, by frames that say nothing.
    """

    def __init__(self, manifest: pb.Manifest) -> None:
        codec = manifest.codec
        self._codec = codec
        self._frame_rate = codec.sample_rate / codec.hop_length
        self._hold = np.array(codec.hold, dtype=np.int64)
        self._says_nothing = self._hold < codec.codebook_size
        self._n_rows = codec.lead_frames if codec.moves else 1
        self._n_frames = 0  # that have been asked about
        self._n_behind = 0  # by so many frames the codec's count is behind
        self._last: Codes = np.zeros((1, codec.n_codebooks), dtype=np.uint16)  # frame that was read
        self._began: float | None = None
        self._up: float | None = None  # the frame that is heard as the key goes up
        self._release: int | None = None  # the first frame that was written with the key up

    def heard(self, now: float) -> None:
        """Some of the note is heard, from its first frame on: `now` is in seconds, as of all calls."""
        self._began = now if self._began is None else self._began

    def key_up(self, now: float) -> None:
        """The key goes up. Where nothing of the note has been heard, all of it will be."""
        if self._began is not None and self._up is None:
            self._up = self._codec.lead_frames + math.ceil((now - self._began) * self._frame_rate)

    def told(self, reply: pb.GenerateResponse) -> None:
        """The server has sent this: from any thread, before `kept` is given its frames."""
        if self._release is None and reply.held_seconds and math.isfinite(reply.held_seconds):
            self._release = held_frames(reply.held_seconds, self._codec)

    def kept(self, codes: Codes) -> Iterator[Codes]:
        """The next codes without what is left out, in parts of a frame; one empty part where there are
        none."""
        for part in np.split(codes, range(1, len(codes))):
            if not len(part):
                yield part
                continue
            number, self._n_frames = self._n_frames, self._n_frames + 1
            says_more = self._says_more(part[0])
            if not says_more and self._is_late(number):
                self._n_behind = (self._n_behind + 1) % self._n_rows
                continue
            if says_more and self._n_behind:
                for _ in range(self._n_behind):
                    yield np.where(self._says_nothing, self._hold, self._last).astype(part.dtype)
                self._n_behind = 0
            self._last = part
            yield part

    def _is_late(self, number: int) -> bool:
        """Whether this frame has the key down, and would be heard only after it went up."""
        return self._up is not None and self._release is not None and self._up <= number < self._release

    def _says_more(self, frame: Codes) -> bool:
        """Whether a frame says more than how high and that the key is held."""
        return len(self._hold) != len(frame) or bool((frame != self._hold)[self._says_nothing].any())


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

    def about(self, note: Note, **action: Any) -> pb.PlayRequest | None:
        """The message with this action of a PlayRequest, such as `cancel`; None where the note has ended."""
        note_id = self._ids.get(note)
        return None if note_id is None else pb.PlayRequest(id=note_id, **action)

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
