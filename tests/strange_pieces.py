"""Whole pieces as strangers write them, by seed, with what is in them: nothing of it may go unsaid."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from strange_midi import chunk, registered, sized, variable, voice

UNPERFORMED = {
    "bank select": ((0, 1),),
    "chorus": ((93, 40),),
    "controller 85": ((85, 9),),
    "non-registered parameter (NRPN)": ((99, 1), (98, 8), (6, 70)),
    "resonance": ((71, 100),),
    "reverb": ((91, 60),),
    "hold 2": ((69, 127),),
}
"""What `timbrel play` names -> the controllers and values that ask for it."""

DIVISIONS = {96: 0.5 / 96, 480: 0.5 / 480, 0xE728: 1 / 1000}
"""Of a header -> seconds a tick, where a quarter note takes half a second."""

STEP_SECONDS = 0.25
ENDING = b"\xff\x2f\x00"
DAMAGES = {"cut": "cut short", "missing": "tracks that it announces", "status": "damaged (status 0xf4)"}
"""What is done to the last track -> words of the remark about it."""

Events = list[tuple[int, bytes]]


@dataclass
class Piece:
    """A file, and what it says."""

    data: bytes = b""
    n_notes: int = 0
    n_drums: int = 0
    onsets: list[float] = field(default_factory=list)
    """When notes begin, in seconds."""
    unperformed: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    """Words that its remarks are to hold, one each."""


def compose(seed: int, seconds: float) -> Piece:
    """Writes a piece of about so many seconds: its seed also says of which type, and how it is damaged."""
    rng = np.random.default_rng(seed)
    piece = Piece()
    kind, division = seed % 3, list(DIVISIONS)[seed // 3 % 3]
    n_steps, step = max(4, round(seconds / STEP_SECONDS)), round(STEP_SECONDS / DIVISIONS[division])
    is_mpe = seed % 5 == 0
    channels = [1, 2, 3] if is_mpe else rng.choice([0, 1, 2, 3, 4, 15], 1 + seed % 3, replace=False).tolist()
    parts: list[Events] = [_part(rng, piece, channel, n_steps, step, is_mpe) for channel in channels]
    beginnings = [_beginning(rng, piece, channel, is_mpe) for channel in channels]
    if is_mpe:  # one setting, of the zone's manager
        beginnings[0] = registered(0, 6, len(channels), 0) + b"\x00" + beginnings[0]
    for part, beginning in zip(parts, beginnings, strict=True):
        part.insert(0, (0, beginning))
    if seed % 4 == 1:
        parts.append(_drums(rng, piece, n_steps, step))
    if kind == 0:
        parts = [sorted((event for part in parts for event in part), key=lambda event: event[0])]
    if kind == 2 and len(parts) > 1:
        piece.remarks.append(f"its {len(parts)} patterns are played one after the other")
        piece.onsets = []
    if kind != 2 and division != 0xE728 and seed % 6 == 4:  # half as fast, from the beginning
        parts[0].insert(0, (0, b"\xff\x51" + sized((1_000_000).to_bytes(3, "big"))))
        piece.onsets = [2 * onset for onset in piece.onsets]
    tracks = [chunk(b"MTrk", _track(part) + b"\x00" + ENDING) for part in parts]
    n_announced = len(tracks)
    if seed % 10 in (3, 6, 9):
        damage = list(DAMAGES)[seed // 10 % 3]
        piece.remarks.append(DAMAGES[damage])
        n_announced += damage == "missing"
        last = _track(parts[-1])
        if damage == "status":
            tracks[-1] = chunk(b"MTrk", last + b"\x00\xf4" + bytes(30))
        elif damage == "cut":
            tracks[-1] = chunk(b"MTrk", last, off_by=9)
    if seed % 7 == 2:
        tracks.insert(int(rng.integers(len(tracks))), chunk(b"XFIH", rng.bytes(20)))
        piece.remarks.append("a chunk 'XFIH' of 20 bytes is unknown")
    header = chunk(b"MThd", struct.pack(">HHH", kind, n_announced, division))
    before = b"RIFF\0\1\0\0RMIDdata\0\1\0\0" if seed % 11 == 5 else b""
    piece.data = before + header + b"".join(tracks)
    return piece


def _track(events: Events) -> bytes:
    now, written = 0, b""
    for tick, event in events:
        written += variable(tick - now) + event
        now = tick
    return written


def _beginning(rng: np.random.Generator, piece: Piece, channel: int, is_mpe: bool) -> bytes:
    """A program, a name, a key signature that is none, a bend's range, perhaps what is not performed."""
    events = [
        voice(0xC, channel, int(rng.integers(96))),
        b"\xff\x03" + sized(rng.choice([b"Solo", b"Gr\xfc\xdfe", b"\x1b[31m", b""])),
        b"\xff\x59" + sized(bytes([0x7F, 7])),
        registered(channel, 0, int(rng.integers(1, 25)), 0),
        voice(0xB, channel, 100, 127, 0, 101, 127),
    ]
    if is_mpe:
        events = events[:3]
    for name in rng.choice(list(UNPERFORMED), int(rng.integers(3)), replace=False):
        piece.unperformed.add(str(name))
        values = [each for pair in UNPERFORMED[str(name)] for each in pair]
        # In running status, each at its own time of 0.
        separated = [values[:2], *([0, *values[place : place + 2]] for place in range(2, len(values), 2))]
        events.append(voice(0xB, channel, *(each for part in separated for each in part)))
    return b"\x00".join(events)


def _part(
    rng: np.random.Generator, piece: Piece, channel: int, n_steps: int, step: int, is_mpe: bool
) -> Events:
    """A line of single notes with rests, bent, pressed, made softer; ended by note-offs or note-ons of 0."""
    events: Events = []
    place = 0
    while place < n_steps:
        length = int(rng.integers(1, 4))
        start, end = place * step, (place + length) * step - step // 4
        key, velocity = int(rng.integers(40, 90)), int(rng.integers(30, 128))
        wheel = voice(0xE, channel, 0, int(rng.integers(48, 80)))
        gesture = [
            voice(0xB, channel, 1, int(rng.integers(128))),
            voice(0xD, channel, int(rng.integers(128))),
            voice(0xA, channel, key, int(rng.integers(128))),
            voice(0xB, channel, 11, int(rng.integers(90, 127))),
            wheel,
        ][int(rng.integers(5))]
        if is_mpe and gesture[1] == 11:
            piece.unperformed.add("expression of single MPE notes")
        off = voice(0x8, channel, key, 64) if rng.random() < 0.5 else voice(0x9, channel, key, 0)
        events += [(start, wheel), (start, voice(0x9, channel, key, velocity))]
        events += [((start + end) // 2, gesture), (end, off)]
        piece.n_notes += 1
        piece.onsets.append(place * STEP_SECONDS)
        place += length + int(rng.integers(2))
    return events


def _drums(rng: np.random.Generator, piece: Piece, n_steps: int, step: int) -> Events:
    events: Events = []
    for place in range(0, n_steps, 2):
        key = int(rng.choice([36, 38, 42]))
        events += [(place * step, voice(0x9, 9, key, 100)), (place * step + step // 2, voice(0x8, 9, key, 0))]
        piece.n_drums += 1
    return events
