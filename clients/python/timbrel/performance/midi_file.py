"""A score out of a Standard MIDI File: its clock, and its tracks together."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from timbrel.errors import MissingExtraError, refusal
from timbrel.performance import controllers as cc
from timbrel.performance.channel import DRUM_CHANNEL
from timbrel.performance.midi_bytes import MidiFile, parse_midi
from timbrel.performance.receiver import N_CHANNELS, UNMAPPED_KEYS, Receiver
from timbrel.performance.score import Score
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents

DEFAULT_TEMPO = 500_000
"""Microseconds a quarter note, where a file says nothing: 120 beats a minute."""

NTSC_FRAMES = 29
"""Files write this for 30 frames a second less a thousandth."""


class Clock:
    """Says when a tick is: ticks are parts of a quarter note, whose length changes, or of a film's frame."""

    def __init__(self, seconds: float, changes: Iterable[tuple[int, float]] = ()) -> None:
        """A tick has this length in seconds at the beginning, and from the tick of each of the changes on
        theirs; of two at a tick, the last counts."""
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
    """The clock of a file's header, whose signed 16-bit `division` is ticks a quarter note, of which `tempos`
    (tick, microseconds) change the length; or, negative, frames a second and ticks a frame (SMPTE). Raises
    ValueError: it divides by nothing."""
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

MAX_BYTES = 1 << 26

EXTRA = "midi"

ENDING = frozenset({cc.ALL_SOUND_OFF, *range(cc.ALL_NOTES_OFF, cc.POLY + 1)})
"""Controllers that end all notes of their channel."""

OVERLAP_SECONDS = 0.05
"""A release so soon after its key was struck again is that of the note before."""


def read_score(path: str | os.PathLike[str], tuning: KeyCents = EQUAL_TEMPERAMENT) -> Score:
    """Reads the score of a MIDI file; the patterns of type 2 follow one another.

    What is damaged is left out, and named in the score's remarks.

    Args:
        tuning: of the keys, as `timbrel.scala.read_tuning` reads it.

    Raises:
        MissingExtraError: mido, which the midi extra brings, is not installed.
        InvalidRequestError: there is no such file, it is no MIDI file, holds no notes on keys that are tuned,
            or is longer than MAX_SECONDS.
    """
    file = _open(Path(path))
    timed, tempos, n_ticks = _in_order(file)
    try:
        clock = clock_of(file.division, tempos)
    except ValueError as error:
        raise refusal("file", f"{path} is no MIDI file that can be read: {error}") from None
    seconds = clock.seconds(n_ticks)
    if seconds > MAX_SECONDS:
        raise refusal(
            "file", f"{path} is {seconds / 60:.0f} minutes long; up to {MAX_SECONDS / 60:.0f} are allowed"
        )
    receiver = Receiver(tuning)
    let_go = _missing_releases(timed, clock)
    for place, (tick, message) in enumerate(timed):
        if place in let_go:
            receiver.play(clock.seconds(tick), message.copy(velocity=0))
        if message is None:
            receiver.end_pattern(clock.seconds(tick))
        else:
            receiver.play(clock.seconds(tick), message)
    try:
        played = receiver.finish(seconds)
    except ValueError as error:
        raise refusal("file", f"{path}: {error}") from None
    notes = sorted(played, key=lambda note: (note.start, note.channel, note.pitch))
    remarks = _remarks(file)
    if let_go:
        who = "a note is" if len(let_go) == 1 else f"{len(let_go)} notes are"
        remarks = (*remarks, f"{who} never let go until the key is struck again: they end there")
    if n_down := receiver.n_never_let_go:
        who = (
            "a note is never let go: it ends" if n_down == 1 else f"{n_down} notes are never let go: they end"
        )
        remarks = (*remarks, f"{who} with the piece")
    if not notes:
        unmapped = receiver.unperformed[UNMAPPED_KEYS]
        what = "no notes but on keys that the keyboard map leaves out" if unmapped else "no notes"
        raise refusal("file", "; ".join([f"{path} holds {what}", *remarks]))
    return Score(
        notes=tuple(notes),
        states=receiver.states,
        seconds=seconds,
        unperformed={name: count for name, count in sorted(receiver.unperformed.items()) if count},
        remarks=remarks,
        track_names=_track_names(file),
        drums=tuple(receiver.drums),
        volume_db=receiver.volume_db,
    )


def _open(path: Path) -> MidiFile:
    try:
        import mido  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("reading a MIDI file", EXTRA) from error
    if path.is_dir() or not path.exists():
        raise refusal("file", f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}")
    try:
        with path.open("rb") as file:  # a pipe, too
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refusal("file", f"{path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise refusal("file", f"{path} holds more than {MAX_BYTES} bytes")
    try:
        return parse_midi(content)
    except ValueError as error:
        raise refusal("file", f"{path} is no MIDI file that can be read: {error}") from None


def _in_order(file: MidiFile) -> tuple[list[tuple[int, Any]], list[tuple[int, int]], int]:
    """(tick, message) of all tracks, by tick, at one tick in the order of the tracks, None where another
    pattern begins; (tick, tempo); the last tick."""
    messages: list[tuple[int, Any]] = []
    tempos: list[tuple[int, int]] = []
    begin = end = 0
    for track in file.tracks:
        if file.kind == 2:  # each is a piece of its own
            begin = end
            tempos.append((begin, DEFAULT_TEMPO))
            messages += [(begin, None)] if begin else []
        messages += [(begin + tick, message) for tick, message in track.messages]
        tempos += [(begin + tick, tempo) for tick, tempo in track.tempos]
        end = max(end, begin + track.n_ticks)
    return sorted(messages, key=lambda pair: pair[0]), tempos, end


def _missing_releases(timed: Sequence[tuple[int, Any]], clock: Clock) -> frozenset[int]:
    """The places of strikes, among messages in order, before which the key wants to be let go: it was down,
    and is struck more often than it is let go. Some programs let a key go once, however often they struck it,
    and one release that is lost would have a note of that key sound on until the piece is over."""
    parts = [0] * N_CHANNELS  # what ends all notes of a channel begins another
    keys: defaultdict[tuple[int, int, int], list[tuple[int, bool]]] = defaultdict(list)
    for place, (_, message) in enumerate(timed):
        if message is None:
            parts = [part + 1 for part in parts]
        elif message.type == "control_change" and message.control in ENDING:
            parts[message.channel] += 1
        elif message.type in ("note_on", "note_off") and message.channel != DRUM_CHANNEL - 1:
            is_strike = message.type == "note_on" and message.velocity > 0
            keys[message.channel, parts[message.channel], message.note].append((place, is_strike))
    missing = []
    for events in keys.values():
        n_down, surplus = 0, sum(1 if is_strike else -1 for _, is_strike in events)
        for (place, is_strike), (following, strikes_next) in pairwise([*events, (events[-1][0], True)]):
            if is_strike and n_down and n_down + surplus > 0:
                seconds = clock.seconds(timed[following][0]) - clock.seconds(timed[place][0])
                if strikes_next or seconds > OVERLAP_SECONDS:
                    missing.append(place)
                    n_down -= 1
            n_down, surplus = (n_down + 1, surplus - 1) if is_strike else (max(n_down - 1, 0), surplus + 1)
    return frozenset(missing)


def _remarks(file: MidiFile) -> tuple[str, ...]:
    remarks = list(file.remarks)
    if file.kind == 2 and len(file.tracks) > 1:
        remarks.append(f"it is of type 2: its {len(file.tracks)} patterns are played one after the other")
    ports = frozenset().union(*(track.ports for track in file.tracks))
    if len(ports) > 1:
        remarks.append(f"it is for {len(ports)} MIDI ports: their channels of one number are played as one")
    return tuple(remarks)


def _track_names(file: MidiFile) -> dict[int, tuple[str, ...]]:
    """Channel, 1..16 -> the names of the tracks that its notes are in."""
    names: dict[int, dict[str, None]] = {}
    for number, track in enumerate(file.tracks, 1):
        for _, message in track.messages:
            if message.type == "note_on":
                names.setdefault(message.channel + 1, {})[track.name or f"track {number}"] = None
    return {channel: tuple(each) for channel, each in names.items()}
