from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from timbrel import InvalidRequestError
from timbrel.performance import read_score
from timbrel.performance.expression import Steps
from timbrel.performance.midi_file import clock_of


def test_without_a_tempo_a_quarter_note_lasts_half_a_second() -> None:
    assert clock_of(480, []).seconds(960) == pytest.approx(1.0)


def test_tempos_count_from_their_tick_on() -> None:
    clock = clock_of(100, [(200, 1_000_000), (300, 250_000)])
    assert [clock.seconds(tick) for tick in (100, 200, 250, 300, 400)] == pytest.approx(
        [0.5, 1.0, 1.5, 2.0, 2.25]
    )


def test_of_two_tempos_at_a_tick_the_last_counts() -> None:
    assert clock_of(100, [(0, 250_000), (0, 1_000_000)]).seconds(100) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("frames", "ticks", "seconds"), [(25, 40, 0.001), (30, 80, 1 / 2400), (29, 100, 1.001 / 3000)]
)
def test_smpte_ticks_are_parts_of_a_frame_and_tempos_mean_nothing(
    frames: int, ticks: int, seconds: float
) -> None:
    division = (-frames << 8) | ticks
    assert clock_of(division, [(0, 1)]).seconds(1) == pytest.approx(seconds)


@pytest.mark.parametrize("division", [0, -25 << 8])
def test_time_divided_by_nothing_is_refused(division: int) -> None:
    with pytest.raises(ValueError, match="0 ticks"):
        clock_of(division, [])


WriteMidi = Callable[..., Path]


def message(kind: str, **values: Any) -> Any:
    import mido

    return mido.Message(kind, **values)


def tempo(microseconds: int) -> Any:
    import mido

    return mido.MetaMessage("set_tempo", tempo=microseconds)


def note(tick: int, length: int, pitch: int, channel: int = 0, velocity: int = 100) -> list[tuple[int, Any]]:
    return [
        (tick, message("note_on", note=pitch, velocity=velocity, channel=channel)),
        (tick + length, message("note_off", note=pitch, channel=channel)),
    ]


def chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">I", len(content)) + content


def raw_file(track: bytes, kind: int = 0, division: int = 96) -> bytes:
    return chunk(b"MThd", struct.pack(">HHH", kind, 1, division & 0xFFFF)) + chunk(b"MTrk", track)


def test_tracks_play_together_under_one_tempo_map(write_midi: WriteMidi) -> None:
    path = write_midi(
        [(0, tempo(1_000_000)), (480, tempo(500_000))],
        [(0, message("program_change", program=40)), *note(0, 480, 60)],
        [(0, message("program_change", program=73, channel=1)), *note(480, 960, 72, channel=1)],
    )
    score = read_score(path)
    assert [(each.start, each.held, each.channel, each.program, each.pitch) for each in score.notes] == [
        (0.0, 1.0, 1, 40, 60),
        (1.0, 1.0, 2, 73, 72),
    ]
    assert score.channels == (1, 2)
    assert score.seconds == pytest.approx(2.0)


def test_a_piece_of_which_the_keyboard_map_leaves_nothing_is_said_to_be_so(write_midi: WriteMidi) -> None:
    tuning = tuple(None if key == 61 else 0.0 for key in range(128))
    with pytest.raises(InvalidRequestError, match="no notes but on keys that the keyboard map leaves out"):
        read_score(write_midi(note(0, 480, 61)), tuning)


def test_a_program_counts_from_its_change_on(write_midi: WriteMidi) -> None:
    change = (480, message("program_change", program=6))
    score = read_score(write_midi([*note(0, 240, 60), change, *note(480, 240, 60)], kind=0))
    assert [each.program for each in score.notes] == [0, 6]


def test_running_status_and_velocity_0(tmp_path: Path) -> None:
    path = tmp_path / "running.mid"
    # One status byte; then pairs of note and velocity, 96 ticks apart; velocity 0 releases.
    path.write_bytes(raw_file(bytes([0, 0x90, 60, 90, 96, 60, 0, 0, 62, 80, 96, 62, 0, 0, 0xFF, 0x2F, 0])))
    notes = read_score(path).notes
    assert [(each.pitch, each.velocity, each.start, each.held) for each in notes] == [
        (60, 90, 0.0, 0.5),
        (62, 80, 0.5, 0.5),
    ]


def test_smpte_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "film.mid"
    path.write_bytes(
        raw_file(
            bytes([0, 0x90, 60, 90, 0x87, 0x68, 60, 0, 0, 0xFF, 0x2F, 0]),  # 1000 ticks
            division=(-25 << 8) | 40,
        )
    )
    assert read_score(path).notes[0].held == pytest.approx(1.0)


def test_a_note_without_an_end_lasts_until_the_piece_does(write_midi: WriteMidi) -> None:
    import mido

    events = [
        (0, message("note_on", note=60, velocity=90)),
        (960, mido.MetaMessage("text", text="the end")),
    ]
    score = read_score(write_midi(events))
    assert score.notes[0].held == pytest.approx(1.0)
    assert score.remarks == ("a note is never let go: it ends with the piece",)


@pytest.mark.parametrize(
    ("events", "held"),
    [
        ("+0 +1 +2 -3 +4 -5", [(0, 1), (1, 1), (2, 1), (4, 1)]),  # one release for three strikes
        ("+0 +2 -3", [(0, 2), (2, 1)]),
        ("+0 +1 -1.02 +2 -2.02 +3 +4 -5", [(0, 1.02), (1, 1.02), (2, 1), (3, 1), (4, 1)]),
        ("+0 +1 -2 -3", [(0, 2), (1, 2)]),  # as many releases as strikes
        ("+0 -1 -2 +3 -4", [(0, 1), (3, 1)]),
    ],
)
def test_a_key_that_is_struck_more_often_than_let_go_is_let_go_where_it_is_struck_again(
    events: str, held: list[tuple[float, float]], write_midi: WriteMidi
) -> None:
    track = [
        (round(960 * float(each[1:])), message("note_on", note=60, velocity=90 * (each[0] == "+")))
        for each in events.split()
    ]
    score = read_score(write_midi([*track, *note(8 * 960, 96, 72)]))
    heard = [pytest.approx((each.start, each.held), abs=0.002) for each in score.notes[:-1]]
    assert heard == held
    n_missing = events.count("+") - events.count("-")
    assert bool(score.remarks) == (n_missing > 0)


def test_what_ends_all_notes_lets_go_of_keys(write_midi: WriteMidi) -> None:
    struck = message("note_on", note=60, velocity=90)
    all_off = message("control_change", control=123)
    score = read_score(write_midi([(0, struck), (480, all_off), (960, struck), (1440, all_off)]))
    assert [note.held for note in score.notes] == pytest.approx([0.5, 0.5])
    assert score.remarks == ()


def test_controllers_become_states_and_the_pedal_lengthens(write_midi: WriteMidi) -> None:
    def control(tick: int, number: int, value: int) -> tuple[int, Any]:
        return tick, message("control_change", control=number, value=value)

    score = read_score(
        write_midi(
            [
                control(0, 7, 80),
                control(0, 10, 0),
                control(0, 64, 127),
                *note(0, 240, 60),
                control(480, 11, 64),
                control(960, 64, 0),
                control(960, 121, 0),
            ]
        )
    )
    assert score.notes[0].held == pytest.approx(1.0)
    states = [(state.start, state.volume, state.expression, state.pan) for state in score.states[1]]
    assert states == [(0.0, 80, 127, 0), (0.5, 80, 64, 0), (1.0, 80, 127, 0)]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "no MIDI file"),
        (b"RIFF....WAVEfmt ", "no MIDI file"),
        (raw_file(bytes([0, 0xFF, 0x2F, 0])), "no notes"),
        (raw_file(bytes([0, 0x90, 60])), "track 1 is damaged"),
        (raw_file(bytes([0, 0x90, 60, 90, 0, 0xFF, 0x2F, 0]), kind=3), "type 3"),
        (raw_file(bytes([0, 0x90, 60, 90, 0, 0xFF, 0x2F, 0]), division=0), "0 ticks"),
        (raw_file(bytes([0, 0x90, 60, 90, 0xFF, 0xFF, 0xFF, 0x7F, 60, 0, 0, 0xFF, 0x2F, 0])), "minutes"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "bad.mid"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=word) as raised:
        read_score(path)
    assert "\n" not in str(raised.value) and "bad.mid" in str(raised.value)


def test_a_channel_prefix_is_no_channels_message(tmp_path: Path) -> None:
    prefix = bytes([0, 0xFF, 0x20, 1, 16])  # a meta event, whose channel may be any byte
    (tmp_path / "piece.mid").write_bytes(
        raw_file(prefix + bytes([0, 0x90, 60, 90, 96, 60, 0, 0, 0xFF, 0x2F, 0]))
    )
    assert [each.channel for each in read_score(tmp_path / "piece.mid").notes] == [1]


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no such file"):
        read_score(tmp_path / "missing.mid")
    with pytest.raises(InvalidRequestError, match="folder"):
        read_score(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes of Windows lie in no folder")
def test_a_pipe_is_read(tmp_path: Path, write_midi: WriteMidi) -> None:
    path = write_midi(note(0, 480, 60))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(Path(path).read_bytes()), daemon=True).start()
    assert read_score(pipe).notes == read_score(path).notes


def test_a_patterns_notes_end_with_it(tmp_path: Path) -> None:
    patterns = [
        bytes([0, 0x90, 60, 90, 96, 0x80, 61, 0, 0, 0xFF, 0x2F, 0]),
        bytes([0, 0x90, 62, 90, 96, 0x80, 62, 0, 0, 0xFF, 0x2F, 0]),
    ]
    content = chunk(b"MThd", struct.pack(">HHH", 2, 2, 96)) + b"".join(
        chunk(b"MTrk", each) for each in patterns
    )
    (tmp_path / "patterns.mid").write_bytes(content)
    first, second = read_score(tmp_path / "patterns.mid").notes
    assert (first.pitch, first.held, second.pitch, second.start) == (60, 0.5, 62, 0.5)


TEN_NOTES = bytes([0, 0xE0, 0, 80, *([0, 0x90, 60, 90, 10, 60, 0] * 10)])


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        ("midi_bytes.MAX_EVENTS", 20, "more than 20 events"),
        ("receiver.MAX_NOTES", 9, "up to 9,"),
        ("receiver.MAX_POINTS", 20, "of 20 points"),
    ],
)
def test_more_than_can_be_held_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, said: str
) -> None:
    (tmp_path / "bad.mid").write_bytes(raw_file(TEN_NOTES + bytes([0, 0xE0, 0, 90])))
    assert len(read_score(tmp_path / "bad.mid").notes) == 10
    monkeypatch.setattr(f"timbrel.performance.{limit}", most)
    with pytest.raises(InvalidRequestError, match=said):
        read_score(tmp_path / "bad.mid")


def test_a_value_over_time_is_what_was_set_last_wherever_one_looks() -> None:
    steps = Steps(1.0)
    for place in range(100):
        steps.set(place / 10, float(place % 7))
    for first in (-5.0, 0.0, 0.05, 3.3, 9.9, 20.0):
        times = first + np.linspace(0.0, 1.0, 23)
        expected = [1.0 if time < 0 else float(min(int(time * 10 + 1e-9), 99) % 7) for time in times]
        assert steps.at(times).tolist() == expected
