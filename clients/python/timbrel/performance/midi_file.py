"""Reads Standard MIDI Files of type 0 and 1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timbrel.errors import FieldViolation, InvalidRequestError, MissingExtraError
from timbrel.performance.channel import Channel
from timbrel.performance.clock import clock_of
from timbrel.performance.score import Score

MAX_SECONDS = 3600.0
"""Longer pieces are refused: the mix is held in memory, some 400 kB a second, and the file's
content beside it."""

EXTRA = "midi"


def read_score(path: str | os.PathLike[str]) -> Score:
    """What a MIDI file asks for.

    Raises:
        MissingExtraError: mido, which the midi extra brings, is not installed.
        InvalidRequestError: there is no such file, it is none of type 0 or 1, is damaged, holds no notes, or
            is longer than MAX_SECONDS.
    """
    file = _open(Path(path))
    if file.type == 2:
        raise _refusal(f"{path} is of type 2, a bag of patterns; save the piece as type 0 or 1")
    messages = list(_in_order(file))
    tempos = [(tick, message.tempo) for tick, message in messages if message.type == "set_tempo"]
    try:
        clock = clock_of(file.ticks_per_beat, tempos)
    except ValueError as error:
        raise _refusal(f"{path} is no MIDI file that can be read: {error}") from None
    seconds = clock.seconds(max((tick for tick, _ in messages), default=0))
    if seconds > MAX_SECONDS:
        raise _refusal(f"{path} is {seconds / 60:.0f} minutes long; up to {MAX_SECONDS / 60:.0f} are allowed")
    channels = [Channel(number) for number in range(1, 17)]
    for tick, message in messages:
        if not message.is_meta and hasattr(message, "channel"):  # a meta message may name one, too
            channels[message.channel].play(clock.seconds(tick), message)
    return _score(path, channels, seconds)


def _score(path: str | os.PathLike[str], channels: list[Channel], seconds: float) -> Score:
    for channel in channels:
        channel.finish(seconds)
    notes = sorted(
        (note for channel in channels for note in channel.notes),
        key=lambda note: (note.start, note.channel, note.pitch),
    )
    if not notes:
        raise _refusal(f"{path} holds no notes")
    return Score(
        notes=tuple(notes),
        states={number: channel.states for number, channel in enumerate(channels, 1)},
        seconds=seconds,
        n_pitch_bends=sum(channel.n_pitch_bends for channel in channels),
    )


def _open(path: Path) -> Any:
    """mido's MidiFile."""
    try:
        import mido
    except ImportError as error:
        raise MissingExtraError("reading a MIDI file", EXTRA) from error
    if not path.is_file():
        raise _refusal(f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}")
    try:
        return mido.MidiFile(path, clip=True)
    except PermissionError:
        raise
    except Exception as error:  # whatever a damaged file makes of mido: it has no error of its own
        reason = " ".join(str(error).split()) or "it is cut short"
        raise _refusal(f"{path} is no MIDI file that can be read ({reason})") from None


def _in_order(file: Any) -> Iterator[tuple[int, Any]]:
    """(tick, message) of all tracks, by tick; at one tick in the order of the tracks."""
    timed = []
    for track in file.tracks:
        tick = 0
        for message in track:
            tick += message.time
            timed.append((tick, message))
    return iter(sorted(timed, key=lambda pair: pair[0]))


def _refusal(description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("file", description)])
