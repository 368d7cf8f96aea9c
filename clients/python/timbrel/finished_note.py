"""From what the server wrote to the note that is handed out."""

from __future__ import annotations

from typing import cast

from timbrel.core.reply import WrittenNote
from timbrel.core.request import NoteRequest
from timbrel.note import Decode, Note


def finished_note(request: NoteRequest, written: WrittenNote, sample_rate: int, decode: Decode) -> Note:
    """The note of a request that was placed on the map.

    Args:
        sample_rate: audio samples per second of what `decode` gives.
    """
    x, y = cast(tuple[float, float], request.timbre)
    return Note(
        timbre=(float(x), float(y)),
        pitch=int(request.pitch),
        velocity=int(request.velocity),
        seconds=float(request.seconds),
        seed=written.seed,
        truncated=written.truncated,
        codes=written.codes,
        sample_rate=sample_rate,
        _decode=decode,
    )
