"""Reads Standard MIDI Files of type 0 and 1: their clock, their tracks, and a score out of them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from timbrel.errors import MissingExtraError, refusal
from timbrel.performance.channel import Channel
from timbrel.performance.score import Score

DEFAULT_TEMPO = 500_000
"""Microseconds a quarter note, where a file says nothing: 120 beats a minute."""

NTSC_FRAMES = 29
"""Files write this for 30 frames a second less a thousandth."""


class Clock:
    """Says when a tick is: ticks are parts of a quarter note, whose length changes, or of a film's frame."""

    def __init__(self, seconds: float, changes: Iterable[tuple[int, float]] = ()) -> None:
        """
        Args:
            seconds: a tick's length at the beginning.
            changes: (tick, length from there on), in any order; of two at a tick, the last counts.
        """
        self._ticks = [0]
        self._seconds = [0.0]
        self._lengths = [seconds]
        for tick, length in sorted(changes, key=lambda pair: pair[0]):
            now = self.seconds(tick)
            self._ticks.append(tick)
            self._seconds.append(now)
            self._lengths.append(length)

    def seconds(self, tick: int) -> float:
        """From the beginning of the piece."""
        place = bisect_right(self._ticks, tick) - 1
        return self._seconds[place] + (tick - self._ticks[place]) * self._lengths[place]


def clock_of(division: int, tempos: Iterable[tuple[int, int]]) -> Clock:
    """The clock of a file's header.

    Args:
        division: a signed 16-bit number: ticks a quarter note; or, negative, frames a second and ticks a
            frame (SMPTE), where tempos mean nothing.
        tempos: (tick, microseconds a quarter note).

    Raises:
        ValueError: it divides by nothing.
    """
    frames, ticks = -(division >> 8), division & 0xFF
    if division == 0 or (division < 0 and ticks == 0):
        raise ValueError("its header divides time into 0 ticks")
    if division < 0:
        rate = 30.0 / 1.001 if frames == NTSC_FRAMES else float(frames)
        return Clock(1.0 / (rate * ticks))
    changes = ((tick, tempo / 1e6 / division) for tick, tempo in tempos)
    return Clock(DEFAULT_TEMPO / 1e6 / division, changes)


MAX_SECONDS = 3600.0
"""Longer pieces are refused: the mix is held in memory, some 400 kB a second, and the file's
content beside it."""

EXTRA = "midi"


def read_score(path: str | os.PathLike[str]) -> Score:
    """Reads the score of a MIDI file.

    Raises:
        MissingExtraError: mido, which the midi extra brings, is not installed.
        InvalidRequestError: there is no such file, it is none of type 0 or 1, is damaged, holds no notes, or
            is longer than MAX_SECONDS.
    """
    file = _open(Path(path))
    if file.type == 2:
        raise refusal("file", f"{path} is of type 2, a bag of patterns; save the piece as type 0 or 1")
    messages = list(_in_order(file))
    tempos = [(tick, message.tempo) for tick, message in messages if message.type == "set_tempo"]
    try:
        clock = clock_of(file.ticks_per_beat, tempos)
    except ValueError as error:
        raise refusal("file", f"{path} is no MIDI file that can be read: {error}") from None
    seconds = clock.seconds(max((tick for tick, _ in messages), default=0))
    if seconds > MAX_SECONDS:
        raise refusal(
            "file", f"{path} is {seconds / 60:.0f} minutes long; up to {MAX_SECONDS / 60:.0f} are allowed"
        )
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
        raise refusal("file", f"{path} holds no notes")
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
        raise refusal("file", f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}")
    try:
        return mido.MidiFile(path, clip=True)
    except PermissionError:
        raise
    except Exception as error:  # whatever a damaged file makes of mido: it has no error of its own
        reason = " ".join(str(error).split()) or "it is cut short"
        raise refusal("file", f"{path} is no MIDI file that can be read ({reason})") from None


def _in_order(file: Any) -> Iterator[tuple[int, Any]]:
    """(tick, message) of all tracks, by tick; at one tick in the order of the tracks."""
    timed = []
    for track in file.tracks:
        tick = 0
        for message in track:
            tick += message.time
            timed.append((tick, message))
    return iter(sorted(timed, key=lambda pair: pair[0]))
