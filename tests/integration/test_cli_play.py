"""`timbrel play` as a user types it: pieces written here, played by the bundle that ships, and measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from requirements_gate import require_module

from timbrel.library.render.pitch import find_trackers

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

TICKS = 480
"""A quarter note."""

CANON = (60, 62, 64, 60, 60, 62, 64, 60, 64, 65, 67, 64, 65, 67)
"""Frère Jacques, traditional: quarter notes, the first two bars and a half of each voice."""

ONSET_SECONDS = 0.010
IN_TUNE_CENTS = 50.0

Run = Callable[..., tuple[int, str, str]]
Side = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Beat:
    """A note that a piece asks for, and when."""

    start: float
    pitch: int


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache and the working folder are the test's own."""
    require_module("mido", "midi")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def write(path: str, *tracks: Sequence[tuple[int, Any]]) -> None:
    """A type 1 file of tracks of (tick, message)."""
    import mido

    file = mido.MidiFile(type=1, ticks_per_beat=TICKS)
    for events in tracks:
        track, now = file.add_track(), 0
        for tick, message in sorted(events, key=lambda event: event[0]):
            track.append(message.copy(time=tick - now))
            now = tick
    file.save(path)


def on(tick: int, pitch: int, velocity: int = 100, channel: int = 0) -> tuple[int, Any]:
    import mido

    return tick, mido.Message("note_on", note=pitch, velocity=velocity, channel=channel)


def control(tick: int, number: int, value: int, channel: int = 0) -> tuple[int, Any]:
    import mido

    return tick, mido.Message("control_change", control=number, value=value, channel=channel)


def program(number: int, channel: int = 0) -> tuple[int, Any]:
    import mido

    return 0, mido.Message("program_change", program=number, channel=channel)


def tempo(tick: int, beats_a_minute: float) -> tuple[int, Any]:
    import mido

    return tick, mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(beats_a_minute))


def write_canon(path: str) -> tuple[list[Beat], list[Beat]]:
    """A canon of a harpsichord on the left and, four beats later, a piano on the right.

    From beat 8 on it goes faster. Notes end by note-ons of velocity 0, as running status writes them.
    """
    voices: list[list[tuple[int, Any]]] = []
    for channel, (number, pan) in enumerate(((6, 0), (0, 127))):
        events = [program(number, channel), control(0, 10, pan, channel)]
        for index, pitch in enumerate(CANON):
            tick = (index + 4 * channel) * TICKS
            events += [
                on(tick, pitch, 90, channel),
                on(tick + TICKS // 3, pitch, 0, channel),
            ]
        voices.append(events)
    write(path, [tempo(0, 90), tempo(8 * TICKS, 120)], *voices)

    def seconds(beat: int) -> float:
        return min(beat, 8) * 60 / 90 + max(0, beat - 8) * 60 / 120

    left, right = (
        [Beat(seconds(index + later), pitch) for index, pitch in enumerate(CANON)] for later in (0, 4)
    )
    return left, right


def onset(side: Side, rate: int, expected: float) -> float:
    """When the sound rises around a time: its 2 ms level passes half way, in dB, from before to its peak."""
    begin = max(0, round((expected - 0.08) * rate))
    window = side[begin : round((expected + 0.08) * rate)].astype(np.float64)
    width = round(0.002 * rate)
    padded = np.pad(np.square(window), (width, 0))
    power = np.convolve(padded, np.ones(width) / width)[width : width + len(window)]
    level = 10.0 * np.log10(power + 1e-8)
    n_before = round((expected - 0.03) * rate) - begin
    before = float(np.median(level[:n_before])) if n_before > width else -80.0
    half_way = (before + float(level.max())) / 2
    return (begin + int(np.argmax(level >= half_way))) / rate


def level_db(side: Side) -> float:
    return float(10.0 * np.log10(np.mean(np.square(side, dtype=np.float64)) + 1e-12))


def test_a_canon_is_on_time_and_in_tune_each_voice_on_its_side(served: str, run: Run) -> None:
    require_module("swift_f0", "demo")
    voices = write_canon("canon.mid")
    status, out, error = run("play", "canon.mid", "--out", "canon.wav", "--server", served, "--json")
    assert (status, error) == (0, "")
    facts = json.loads(out)
    audio, rate = soundfile.read("canon.wav", dtype="float32")
    assert soundfile.info("canon.wav").subtype == "PCM_24"
    assert (audio.shape[1], rate, len(audio) / rate) == (2, 48_000, pytest.approx(facts["seconds"], abs=1e-4))
    assert [(part["channel"], part["player"], part["notes"]) for part in facts["parts"]] == [
        (1, "Harpsichord", 14),
        (2, "Acoustic Grand Piano", 14),
    ]
    # Quarters of 667 and of 500 ms are held for 222 and 167 ms: a tempo makes other notes.
    assert facts["notes"] == 28 and facts["rendered"] < 28
    trackers = find_trackers()
    for side, beats in zip(audio.T, voices, strict=True):
        late = [onset(side, rate, beat.start) - beat.start for beat in beats]
        assert max(abs(each) for each in late) <= ONSET_SECONDS, [round(1000 * each, 1) for each in late]
        for beat, after in zip(beats, [*beats[1:], Beat(beats[-1].start + 0.5, 0)], strict=True):
            piece = np.ascontiguousarray(side[round(beat.start * rate) : round((after.start - 0.01) * rate)])
            heard = [pitch for pitch in trackers.measure(piece, rate) if pitch is not None]
            assert min(abs(pitch - beat.pitch) for pitch in heard) * 100 <= IN_TUNE_CENTS, (beat, heard)


@pytest.mark.parametrize(("served_by", "n_lengthened"), [("served", 0), ("bounded", 1)])
def test_the_pedal_holds_and_overlapping_equal_notes_each_have_their_length(
    served_by: str, n_lengthened: int, request: pytest.FixtureRequest, run: Run
) -> None:
    served = request.getfixturevalue(served_by)
    quarter = 0.5
    write(
        "pedal.mid",
        [
            program(20),
            control(0, 64, 127),
            on(0, 60),
            on(TICKS // 4, 60, 0),  # held by the pedal until beat 3
            control(3 * TICKS, 64, 0),
            on(6 * TICKS, 60),
            on(7 * TICKS, 60),  # struck again while it is held
            on(8 * TICKS, 60, 0),
            on(10 * TICKS, 60, 0),
            on(14 * TICKS, 60),  # longer than a bundle's 4 seconds
            on(26 * TICKS, 60, 0),
        ],
    )
    status, out, _ = run("play", "pedal.mid", "--out", "pedal.flac", "--server", served, "--json")
    facts = json.loads(out)
    assert (status, facts["notes"], facts["lengthened"], facts["cut"]) == (0, 4, n_lengthened, 0)
    audio, rate = soundfile.read("pedal.flac", dtype="float32")
    assert np.array_equal(audio[:, 0], audio[:, 1])

    def at(beat: float) -> float:
        return level_db(audio[round(beat * quarter * rate) : round((beat + 0.4) * quarter * rate), 0])

    sounding, silent = [1.0, 2.5, 6.2, 8.2, 9.5, 14.5, 20.0, 25.5], [4.0, 5.5, 11.0, 13.5]
    assert 26 * quarter < len(audio) / rate < 28 * quarter
    assert min(at(beat) for beat in sounding) > max(at(beat) for beat in silent) + 30.0
    assert facts["rendered"] == 3  # the overlapping two are both held for two beats
    piece = np.ascontiguousarray(audio[round(20 * quarter * rate) : round(25 * quarter * rate), 0])
    assert any(abs(pitch - 60) < 0.5 for pitch in find_trackers().measure(piece, rate) if pitch is not None)


def test_a_note_below_the_bundles_pitches_is_in_tune_and_said_to_be_bent(served: str, run: Run) -> None:
    write("low.mid", [program(33), on(0, 31), on(2 * TICKS, 31, 0)])
    status, out, _ = run("play", "low.mid", "--out", "low.wav", "--server", served)
    assert status == 0
    assert "1 note outside of 33..96 bent from the nearest pitch (--fold transposes by octaves)" in out
    audio, rate = soundfile.read("low.wav", dtype="float32")
    piece = np.ascontiguousarray(audio[round(0.1 * rate) : round(0.9 * rate), 0])
    assert any(abs(pitch - 31) < 0.5 for pitch in find_trackers().measure(piece, rate) if pitch is not None)


def test_velocity_volume_and_expression_set_the_level(served: str, run: Run) -> None:
    events = [program(0), on(0, 60, 120), on(TICKS, 60, 0), on(4 * TICKS, 60, 30), on(5 * TICKS, 60, 0)]
    events += [control(7 * TICKS, 7, 50), on(8 * TICKS, 60, 120), on(9 * TICKS, 60, 0)]
    write("levels.mid", events)
    assert run("play", "levels.mid", "--out", "levels.wav", "--server", served)[0] == 0
    audio, rate = soundfile.read("levels.wav", dtype="float32")
    loud, soft, turned_down = (
        level_db(audio[round(second * rate) : round((second + 0.5) * rate), 0]) for second in (0.0, 2.0, 4.0)
    )
    assert loud - soft > 6.0
    assert loud - turned_down == pytest.approx(-40 * np.log10(0.5), abs=0.1)


def test_the_summary_says_who_plays_and_what_was_left_out(served: str, run: Run) -> None:
    import mido

    write(
        "song.mid",
        [program(41), on(0, 60), on(240, 60, 0), on(240, 8), on(480, 8, 0)],
        [control(0, 91, 60)],
        [
            (0, mido.MetaMessage("track_name", name="Kit")),
            on(0, 36, channel=9),
            on(240, 36, 0, channel=9),
            on(240, 38, channel=9),
            on(480, 38, 0, channel=9),
        ],
    )
    to = ("--server", served)
    status, out, error = run("play", "song.mid", "--out", "song.ogg", "--sample-rate", "44100", *to)
    assert (status, error) == (0, "")
    assert out.startswith("song.ogg: ") and "1 note (1 different)" in out
    lines = [line.strip() for line in out.splitlines()[1:]]
    assert lines == [
        "channel  1  Violin  1 note, nearest to the file's Viola",
        "channel 10 (Kit): 2 drum notes left out (--drums FONT.sf2 plays them)",
        "1 note outside of 33..96 left out (--fold transposes by octaves)",
        "not performed: reverb (1)",
    ]
    info = soundfile.info("song.ogg")
    assert (info.format, info.subtype, info.samplerate, info.channels) == ("OGG", "VORBIS", 44_100, 2)
    _, folded, _ = run("play", "song.mid", "--fold", "--out", "fold.wav", *to)
    assert "2 notes (2 different)" in folded and "1 note outside of 33..96 transposed by octaves" in folded


def test_a_loud_piece_is_brought_to_minus_1_db_and_says_so(served: str, run: Run) -> None:
    chord = (48, 52, 55, 60, 64, 67, 72, 76)
    events = [event for pitch in chord for event in (on(0, pitch, 127), on(2 * TICKS, pitch, 0))]
    write("loud.mid", [control(0, 7, 127), *events])
    status, out, _ = run("play", "loud.mid", "--timbre", "Trombone", "--out", "loud.wav", "--server", served)
    audio, _ = soundfile.read("loud.wav")
    assert status == 0 and "it would have clipped" in out
    assert 20 * np.log10(np.abs(audio).max()) == pytest.approx(-1.0, abs=0.01)


def test_the_same_command_writes_the_same_bytes_and_another_seed_does_not(
    server_address: str, run: Run
) -> None:
    write("piece.mid", [on(0, 60), on(240, 60, 0), on(240, 64), on(480, 64, 0)])
    command = ["play", "piece.mid", "--timbre", "1=-0.2,0.4", "--server", server_address]
    for name, seed in (("one.wav", "1"), ("again.wav", "1"), ("other.wav", "2")):
        assert run(*command, "--seed", seed, "--out", name)[0] == 0
    assert Path("one.wav").read_bytes() == Path("again.wav").read_bytes()
    assert Path("one.wav").read_bytes() != Path("other.wav").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--timbre", "Violinn"], "Violin"),
        (["--timbre", "5=Violin"], "channel 5"),
        (["--timbre", "99=Violin"], "channel 99"),
        (["--out", "piece.mp3"], "piece.mp3"),
        (["--sample-rate", "1"], "sample_rate"),
        (["--out", "piece.flac", "--sample-rate", "65537"], "65537"),
        (["--takes", "0"], "takes"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_bad_input_is_one_line_status_2_and_no_file(
    server_address: str, run: Run, arguments: list[str], word: str
) -> None:
    write("piece.mid", [on(0, 60), on(240, 60, 0)])
    status, out, error = run("play", "piece.mid", "--out", "p.wav", "--server", server_address, *arguments)
    assert (status, out) == (2, "")
    assert error.startswith("timbrel: ") and error.count("\n") == 1
    assert word in error
    assert [path.name for path in Path().iterdir()] == ["piece.mid"]


def test_a_piece_of_which_nothing_can_be_played_is_one_line_and_no_file(
    server_address: str, run: Run
) -> None:
    write("piece.mid", [on(0, 60, channel=9), on(240, 60, 0, channel=9), on(0, 127), on(240, 127, 0)])
    command = ["play", "piece.mid", "--out", "p.flac", "--server", server_address]
    status, out, error = run(*command)
    assert (status, out) == (2, "") and error.count("\n") == 1
    assert "drums want a font" in error and "those outside of 36..96 want to be folded (1)" in error
    assert "effects" not in error
    assert not Path("p.flac").exists()
    assert run(*command, "--fold")[0] == 0


def test_a_file_that_is_no_piece_is_one_line(run: Run) -> None:
    Path("noise.mid").write_bytes(b"MThd but not really")
    for name in ("noise.mid", "missing.mid"):
        status, out, error = run("play", name, "--out", "p.wav", "--server", "nowhere.invalid:1")
        assert (status, out) == (2, "") and name in error and error.count("\n") == 1
