from __future__ import annotations

import struct
from pathlib import Path

import pytest
from requirements_gate import require_module

from timbrel.performance import Score, read_score
from timbrel.performance.midi_bytes import parse_midi

END = bytes([0, 0xFF, 0x2F, 0])
NOTE = bytes([0, 0x90, 60, 90, 96, 60, 0])
"""A quarter of a second's middle C, at 96 ticks a quarter note, in running status."""


@pytest.fixture(autouse=True)
def mido() -> None:
    require_module("mido", "midi")


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack(">I", len(content)) + content


def file_of(*tracks: bytes, kind: int = 1, n_tracks: int | None = None) -> bytes:
    header = struct.pack(">HHH", kind, len(tracks) if n_tracks is None else n_tracks, 96)
    return chunk(b"MThd", header) + b"".join(chunk(b"MTrk", track) for track in tracks)


def read(folder: Path, data: bytes) -> Score:
    (folder / "piece.mid").write_bytes(data)
    return read_score(folder / "piece.mid")


@pytest.mark.parametrize(
    "event",
    [
        bytes([0xFF, 0x59, 2, 12, 5]),  # a key of twelve sharps
        bytes([0xFF, 0x59, 0]),
        bytes([0xFF, 0x51, 1, 7]),  # a tempo of one byte
        bytes([0xFF, 0x51, 3, 0, 0, 0]),
        bytes([0xFF, 0x54, 2, 0xFF, 0xFF]),
        bytes([0xFF, 0x20, 0]),
        bytes([0xFF, 0x60, 1, 1]),
        bytes([0xF0, 3, 1, 2, 3]),  # without its end
        bytes([0xF7, 2, 0xF3, 1]),
        bytes([0xFE]),
    ],
)
def test_bad_events_between_notes_are_passed_over_and_keep_the_time(tmp_path: Path, event: bytes) -> None:
    score = read(tmp_path, file_of(NOTE + bytes([96]) + event + NOTE + END))
    assert [(note.start, note.held) for note in score.notes] == [(0.0, 0.5), (1.0, 0.5)]
    assert score.remarks == ()


def test_alien_chunks_and_wrappings_are_passed_over_and_named(tmp_path: Path) -> None:
    plain = file_of(NOTE + END, NOTE + END)
    place = plain.index(b"MTrk")
    score = read(tmp_path, plain[:place] + chunk(b"XFIH", b"12345") + plain[place:])
    assert len(score.notes) == 2 and score.remarks == ("a chunk 'XFIH' of 5 bytes is unknown",)
    wrapped = b"RIFF" + struct.pack("<I", len(plain) + 12) + b"RMID" + chunk(b"data", b"")[:8] + plain
    assert len(read(tmp_path, wrapped).notes) == 2


def test_what_is_cut_short_or_damaged_is_played_up_to_there_and_named(tmp_path: Path) -> None:
    score = read(tmp_path, file_of(NOTE + NOTE + END)[:-6])
    assert len(score.notes) == 2  # the second one ends with the piece
    assert score.remarks == (
        "track 1 is damaged (an event is cut short): it is played up to there",
        "a note is never let go: it ends with the piece",
    )
    score = read(tmp_path, file_of(NOTE + bytes([0, 0xF9]) + NOTE + END, NOTE + END, n_tracks=3))
    assert len(score.notes) == 2
    assert score.remarks == (
        "track 1 is damaged (status 0xf9): it is played up to there",
        "2 of the 3 tracks that it announces are there",
    )


def test_patterns_of_type_2_follow_one_another_each_with_its_tempo(tmp_path: Path) -> None:
    fast = bytes([0, 0xFF, 0x51, 3, *(250_000).to_bytes(3, "big")])
    score = read(tmp_path, file_of(fast + NOTE + END, NOTE + END, kind=2))
    assert [(note.start, note.held) for note in score.notes] == [(0.0, 0.25), (0.25, 0.5)]
    assert score.remarks == ("it is of type 2: its 2 patterns are played one after the other",)


def test_an_exclusive_message_in_two_parts_is_one() -> None:
    track = bytes([0, 0xF0, 3, 0x7E, 0x7F, 9, 10, 0xF7, 2, 1, 0xF7]) + END
    (parsed,) = parse_midi(file_of(track)).tracks
    assert [(tick, tuple(message.data)) for tick, message in parsed.messages] == [(0, (0x7E, 0x7F, 9, 1))]


@pytest.mark.parametrize("encoding", ["utf-8", "latin1"])
def test_a_track_name_is_read_whatever_its_encoding(tmp_path: Path, encoding: str) -> None:
    name = "Bühne".encode(encoding)
    score = read(tmp_path, file_of(bytes([0, 0xFF, 3, len(name)]) + name + NOTE + END))
    assert score.track_names == {1: ("Bühne",)}


def test_ports_and_track_names_are_told(tmp_path: Path) -> None:
    first = bytes([0, 0xFF, 3, 5]) + b"Drums" + bytes([0, 0xFF, 0x21, 1, 0, 0, 0x99, 36, 90]) + END
    score = read(tmp_path, file_of(first, bytes([0, 0xFF, 0x21, 1, 1]) + NOTE + END))
    assert score.track_names == {10: ("Drums",), 1: ("track 2",)}
    assert score.remarks == ("it is for 2 MIDI ports: their channels of one number are played as one",)


def test_a_system_exclusive_message_is_kept_as_far_as_any_is_obeyed() -> None:
    """Each byte took a microsecond and a half: of a dump of all of a sampler's memory, minutes."""
    dump = bytes([0, 0xF0, 0x84, 0x80, 0x80, 0]) + bytes(4 << 21)
    (track,) = parse_midi(file_of(dump + NOTE + END)).tracks
    assert len(track.messages[0][1].data) <= 1024 and len(track.messages) == 3
