"""The bytes of a Standard MIDI File, read as far as they go: what is strange or damaged is named.

mido's own reader gives a whole file up for one bad key signature, an unknown chunk or a missing byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_PREFIX = 4096
"""A RIFF or MacBinary header before the file's own is at most so long, in bytes."""

MAX_EVENTS = 1 << 19
"""Of all tracks together. Each takes some hundred bytes, and a millisecond until it is a note."""

MAX_EXCLUSIVE_BYTES = 1024
"""Of a system exclusive message that are kept: twice as many as the longest has that is obeyed."""

MAX_VARIABLE_BYTES = 4
META, SYSEX, SYSEX_MORE = 0xFF, 0xF0, 0xF7
TRACK_NAME, PORT, END_OF_TRACK, TEMPO = 0x03, 0x21, 0x2F, 0x51

_DATA_BYTES = {0x8: 2, 0x9: 2, 0xA: 2, 0xB: 2, 0xC: 1, 0xD: 1, 0xE: 2}
_SYSTEM_BYTES = {0xF1: 1, 0xF2: 2, 0xF3: 1, 0xF6: 0, 0xF8: 0, 0xFA: 0, 0xFB: 0, 0xFC: 0, 0xFE: 0}
"""Status -> data bytes; system messages have no business in a file, and are passed over."""


@dataclass(frozen=True)
class MidiTrack:
    """A track: its name and what it holds, by tick from its beginning."""

    name: str
    messages: list[tuple[int, Any]]
    """(tick, mido message): those of channels, and system exclusive ones."""
    tempos: list[tuple[int, int]]
    """(tick, microseconds a quarter note)."""
    ports: frozenset[int]
    n_ticks: int
    """Until its last event."""


@dataclass(frozen=True)
class MidiFile:
    """A file's header, its tracks, and what of it could not be read."""

    kind: int
    """0, 1 or 2."""
    division: int
    """Signed: ticks a quarter note, or frames and ticks of film."""
    tracks: list[MidiTrack]
    remarks: list[str]
    """A line each, for people."""


class _DamagedError(Exception):
    """The bytes make no sense from here on; the message says why."""


def parse_midi(data: bytes) -> MidiFile:
    """Reads a file's bytes; needs mido. Raises ValueError: it has no header, is of another type than 0, 1 and
    2, or holds too much; the message says which."""
    start = data.find(b"MThd", 0, MAX_PREFIX)
    if start < 0 or len(data) < start + 14:
        raise ValueError("it has no MIDI header" if start < 0 else "it is cut short")
    size, kind, n_tracks, division = struct.unpack(">IHHh", data[start + 4 : start + 14])
    if size < 6 or kind > 2:
        raise ValueError(f"type {kind}; 0, 1 and 2 are read" if kind > 2 else "its header is damaged")
    remarks: list[str] = []
    tracks: list[MidiTrack] = []
    most_events = MAX_EVENTS
    for name, content, missing in _chunks(data, start + 8 + size):
        if name != b"MTrk":
            if len(tracks) < n_tracks:  # behind the last one, files carry padding and tags
                remarks.append(f"a chunk {name.decode('ascii')!r} of {len(content)} bytes is unknown")
            continue
        track, damage = _read_track(content, most_events)
        most_events -= len(track.messages) + len(track.tempos)
        tracks.append(track)
        if damage or missing:
            rest = f"damaged ({damage})" if damage else "cut short"
            remarks.append(f"track {len(tracks)} is {rest}: it is played up to there")
    if len(tracks) < n_tracks:
        remarks.append(f"{len(tracks)} of the {n_tracks} tracks that it announces are there")
    return MidiFile(kind, division, tracks, remarks)


def _chunks(data: bytes, place: int) -> Iterator[tuple[bytes, bytes, int]]:
    """(name, content, missing bytes) of each chunk, up to where there is none."""
    while place + 8 <= len(data):
        name, size = struct.unpack(">4sI", data[place : place + 8])
        if not (name.isascii() and name.decode("ascii").isprintable()):
            return
        content = data[place + 8 : place + 8 + size]
        yield name, content, size - len(content)
        place += 8 + size


class _Bytes:
    """Reads a track's bytes one after another; raises _DamagedError where they end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def __bool__(self) -> bool:
        return self._place < len(self._data)

    def take(self, n_bytes: int) -> bytes:
        taken = self._data[self._place : self._place + n_bytes]
        if len(taken) < n_bytes:
            raise _DamagedError("an event is cut short")
        self._place += n_bytes
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def variable(self) -> int:
        value = 0
        for _ in range(MAX_VARIABLE_BYTES):
            byte = self.byte()
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value
        raise _DamagedError("a number without an end")


def _read_track(data: bytes, most_events: int) -> tuple[MidiTrack, str]:
    """The track, and what is wrong with it, if anything is. Raises ValueError where it has more events."""
    import mido

    source = _Bytes(data)
    messages: list[tuple[int, Any]] = []
    exclusive: list[tuple[int, bytearray]] = []
    tempos: list[tuple[int, int]] = []
    names: list[str] = []
    ports: set[int] = set()
    tick, running, damage = 0, 0, ""
    try:
        while source:
            if len(messages) + len(tempos) >= most_events:
                raise ValueError(f"it holds more than {MAX_EVENTS} events")
            tick += source.variable()
            status = source.byte()
            first = b""
            if status < 0x80:
                status, first = running, bytes([status])
            if status == META:
                kind, content = source.byte(), source.take(source.variable())
                if kind == END_OF_TRACK:
                    break
                if kind == TEMPO and len(content) >= 3 and any(content[:3]):
                    tempos.append((tick, int.from_bytes(content[:3], "big")))
                elif kind == TRACK_NAME:
                    names.append(" ".join(_decoded(content).split()))
                elif kind == PORT and content:
                    ports.add(content[0])
            elif status == SYSEX:
                exclusive.append((tick, bytearray(source.take(source.variable()))))
                messages.append((tick, exclusive[-1][1]))
            elif status == SYSEX_MORE:
                content = source.take(source.variable())
                if exclusive and not exclusive[-1][1].endswith(b"\xf7"):
                    exclusive[-1][1].extend(content)
            elif (n_bytes := _DATA_BYTES.get(status >> 4)) is not None:
                running = status
                content = first + source.take(n_bytes - len(first))
                values = [min(value, 127) for value in content]
                messages.append((tick, mido.Message.from_bytes([status, *values])))
            elif status in _SYSTEM_BYTES and not first:
                source.take(_SYSTEM_BYTES[status])
            else:
                raise _DamagedError(f"status {status:#04x}" if status else "data without a status")
    except _DamagedError as error:
        damage = str(error)
    whole = [(when, _exclusive(each) if isinstance(each, bytearray) else each) for when, each in messages]
    name = "".join(each if each.isprintable() else "?" for each in (names or [""])[0])[:40]
    return MidiTrack(name, whole, tempos, frozenset(ports), tick), damage


def _decoded(text: bytes) -> str:
    """A text of the file, whose encoding nothing states: UTF-8 by programs of today, else Latin-1."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin1")


def _exclusive(content: bytearray) -> Any:
    """A system exclusive message, without the bytes around it."""
    import mido

    data = content[:MAX_EXCLUSIVE_BYTES].removeprefix(b"\xf0").removesuffix(b"\xf7")
    return mido.Message("sysex", data=[min(value, 127) for value in data])
