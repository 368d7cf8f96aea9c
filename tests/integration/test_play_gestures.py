"""Bends, MPE, tunings and the like in `timbrel play`: files written here, played by the bundle that ships,
and their pitch and level measured."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from requirements_gate import require_module, require_system

import timbrel
from timbrel.library.render.level import rms_db
from timbrel.performance.drums import DrumsError, play_drums
from timbrel.performance.sustain import Sustain, TrimmedNote
from timbrel_bundle.yin import Yin, track_pitch

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")


SOUNDFONT = Path("/usr/share/sounds/sf2/FluidR3_GM.sf2")
TICKS = 480
SECOND = 2 * TICKS
"""Two quarter notes at 120 a minute."""

TOLERANCE_CENTS = 10.0

Event = tuple[float, str, dict[str, Any]]
"""(seconds, kind of message, its values)"""
Audio = npt.NDArray[np.float32]


class Player:
    """Writes a file, has it played, and measures it."""

    def __init__(self, run: Callable[..., tuple[int, str, str]], address: str) -> None:
        self._run = run
        self.address = address
        self.facts: dict[str, Any] = {}
        self.audio: Audio = np.zeros((0, 2), np.float32)
        self.rate = 0

    def play(self, events: Sequence[Event], *arguments: str) -> None:
        import mido

        file = mido.MidiFile(type=0, ticks_per_beat=TICKS)
        track, now = file.add_track(), 0
        for seconds, kind, values in sorted(events, key=lambda event: event[0]):
            tick = round(seconds * SECOND)
            track.append(mido.Message(kind, time=tick - now, **values))
            now = tick
        file.save("piece.mid")
        command = ["play", "piece.mid", "--out", "piece.wav", "--json", "--server", self.address]
        status, out, error = self._run(*command, *(arguments or ("--timbre", "Trumpet")))
        assert (status, error) == (0, "")
        self.facts = json.loads(out)
        self.audio, self.rate = soundfile.read("piece.wav", dtype="float32")

    def piece(self, start: float, end: float) -> Audio:
        return np.ascontiguousarray(self.audio[round(start * self.rate) : round(end * self.rate), 0])

    def cents(self, start: float, end: float, key: int = 60) -> float:
        """The median pitch of a stretch, in cents above a key's pitch as the note without a bend is heard."""
        pitch = Yin().measure(self.piece(start, end), self.rate)
        assert pitch is not None
        return 100.0 * (pitch - key)

    def brightness_db(self, start: float, end: float, key: int = 60) -> float:
        """The level of the partials above the seventh, beside that of the first two."""
        piece = self.piece(start, end).astype(np.float64)
        power = np.square(np.abs(np.fft.rfft(piece * np.hanning(len(piece)))))
        partial = np.fft.rfftfreq(len(piece), 1 / self.rate) / (440.0 * 2 ** ((key - 69) / 12))
        low, high = power[(partial > 0.5) & (partial < 2.5)].sum(), power[partial > 7.5].sum()
        return float(10 * np.log10(high / low))

    def level_db(self, start: float, end: float) -> float:
        return float(10 * np.log10(np.mean(np.square(self.piece(start, end), dtype=np.float64)) + 1e-12))


@pytest.fixture
def player(
    served: str,
    run: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Player:
    require_module("mido", "midi")
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Player(run, served)


def note(start: float, seconds: float, key: int = 60, channel: int = 0, velocity: int = 100) -> list[Event]:
    return [
        (start, "note_on", {"note": key, "velocity": velocity, "channel": channel}),
        (start + seconds, "note_off", {"note": key, "channel": channel}),
    ]


def control(seconds: float, *pairs: tuple[int, int], channel: int = 0) -> list[Event]:
    return [
        (seconds, "control_change", {"control": number, "value": value, "channel": channel})
        for number, value in pairs
    ]


def rpn(seconds: float, number: int, coarse: int, fine: int = 0, channel: int = 0) -> list[Event]:
    """A registered parameter, and then none selected."""
    pairs = [(101, 0), (100, number), (6, coarse), (38, fine), (101, 127), (100, 127)]
    return control(seconds, *pairs, channel=channel)


def wheel(seconds: float, value: int, channel: int = 0) -> Event:
    return seconds, "pitchwheel", {"pitch": value, "channel": channel}


def exclusive(seconds: float, *data: int) -> Event:
    return seconds, "sysex", {"data": data}


def check(found: Sequence[float], wanted: Sequence[float]) -> None:
    """Cents that were heard, beside those that were asked for."""
    errors = np.array(found) - np.array(wanted)
    assert np.abs(errors).max() <= TOLERANCE_CENTS, np.round([found, wanted], 1).tolist()


def test_bends_follow_their_range_and_tunings_add_up(player: Player) -> None:
    """A note without a bend every time first: what is asked is asked beside it."""
    events = [*note(0.0, 1.0)]
    events += [wheel(1.5, 4096), *note(1.5, 1.0)]  # half of two semitones
    events += [*rpn(2.9, 0, 12), *note(3.0, 1.0)]  # the wheel where it was, half of twelve
    events += [*rpn(4.4, 0, 0, 50), wheel(4.4, -8192), *note(4.5, 1.0)]  # down by fifty cents
    # Another parameter's data, and data for none, move nothing.
    events += control(5.9, (99, 0), (98, 0), (6, 24), (101, 127), (100, 127), (6, 7))
    events += note(6.0, 1.0)
    # Up from 50 cents by ten steps of data increment; 64 + 16 is a quarter of a semitone; master coarse: -1.
    events += [*control(7.4, (101, 0), (100, 0), *((96, 0),) * 10), *rpn(7.4, 1, 80)]
    events += [exclusive(7.4, 0x7F, 0x7F, 0x04, 0x04, 0, 63), *note(7.5, 1.0)]
    events += [*rpn(8.9, 2, 64 + 7), wheel(8.9, 0), *note(9.0, 1.0)]
    player.play(events)
    plain = player.cents(0.1, 0.9)
    heard = [player.cents(start + 0.1, start + 0.9) - plain for start in (1.5, 3.0, 4.5, 6.0, 7.5, 9.0)]
    wanted = [100.0, 600.0, -50.0, -50.0, -60.0 + 25.0 - 100.0, 700.0 + 25.0 - 100.0]
    check(heard, wanted)
    assert player.facts["not_performed"] == {"non-registered parameter (NRPN)": 1}


def test_mpe_bends_and_presses_each_note_for_itself(player: Player) -> None:
    """Two notes at once in the members' channels: each is measured with the other's channel silent, too."""
    setup = rpn(0.0, 6, 15)
    low, high = note(0.5, 2.0, 60, channel=1), note(0.5, 2.0, 67, channel=2)
    # A semitone of 48 in the first, none in the second; a whole tone for both by the manager's wheel.
    bends = [wheel(0.4, 171, 1), wheel(0.4, 0, 2), wheel(1.5, 8191, 0), wheel(1.5, -341, 2)]
    press = [(1.5, "aftertouch", {"value": 127, "channel": 1}), *control(0.4, (74, 90), channel=1)]
    player.play([*setup, *bends, *press, *low])
    assert [part["channel"] for part in player.facts["parts"]] == [1]
    assert player.facts["not_performed"] == {}
    first = player.audio
    tuned = reference(player, 60)
    check([player.cents(0.7, 1.4), player.cents(1.8, 2.4)], [100.2 + tuned, 300.2 + tuned])
    assert player.level_db(1.9, 2.4) - player.level_db(0.9, 1.4) == pytest.approx(6.0, abs=2.5)
    player.play([*setup, *bends, *press, *high])
    tuned = reference(player, 67)  # then the manager's two semitones up, and two down by its own
    check([player.cents(0.7, 1.4, 67), player.cents(1.8, 2.4, 67)], [tuned, tuned])
    second = player.audio
    player.play([*setup, *bends, *press, *low, *high])
    n = min(len(first), len(second), len(player.audio))
    assert np.abs(player.audio[:n] - first[:n] - second[:n]).max() < 1e-3


def reference(player: Player, key: int) -> float:
    """How far from its key the note is heard without any bend."""
    audio, rate = player.audio, player.rate
    player.play(note(0.0, 2.0, key))
    cents = player.cents(0.2, 0.9, key)
    player.audio, player.rate = audio, rate
    return cents


def test_modulation_is_a_vibrato(player: Player) -> None:
    player.play([*note(0.0, 2.0), *control(2.9, (1, 127)), *note(3.0, 2.0)])
    spread = []
    for start in (0.0, 3.0):
        track = track_pitch(player.piece(start + 0.2, start + 1.9), player.rate)
        cents = 1200 * np.log2(track.hertz[track.voiced])
        spread.append(float(np.ptp(np.percentile(cents, [5, 95]))) / 2)
        crossings = np.count_nonzero(np.diff(np.sign(cents - np.median(cents))))
    print("half the width of the pitch without and with modulation:", spread)
    assert spread[0] < 10.0 and 35.0 < spread[1] < 60.0
    assert crossings / 2 / 1.7 == pytest.approx(5.5, abs=1.2)


def test_pressure_and_master_volume_set_the_level_of_notes_that_sound(player: Player) -> None:
    events = [*note(0.0, 2.0), *note(3.0, 2.0), *note(6.0, 2.0), *note(9.0, 2.0)]
    events += [(4.0, "aftertouch", {"value": 127}), (5.5, "aftertouch", {"value": 0})]
    events += [(7.0, "polytouch", {"note": 60, "value": 127}), (7.0, "polytouch", {"note": 72, "value": 0})]
    events += [(8.8, "polytouch", {"note": 60, "value": 0}), exclusive(8.9, 0x7F, 0x7F, 0x04, 0x01, 0, 64)]
    player.play(events)
    plain = player.level_db(1.1, 1.9)
    louder = [player.level_db(start + 1.1, start + 1.9) - plain for start in (3.0, 6.0, 9.0)]
    assert louder == pytest.approx([6.0, 6.0, 40 * np.log10((64 << 7) / 16383)], abs=0.2)
    assert player.level_db(3.2, 3.9) == pytest.approx(player.level_db(0.2, 0.9), abs=0.2)


def test_slide_and_pressure_make_notes_brighter_and_the_slide_no_louder(player: Player) -> None:
    """A member's slide before its note and while it sounds; then pressure; then another channel's slide."""
    zone = rpn(0.0, 6, 2)
    slides = [*control(2.9, (74, 127), channel=1), *control(5.9, (74, 0), channel=1)]
    slides += [*control(7.0, (74, 64), channel=1), *control(7.0, (74, 127), channel=2)]
    press = (9.5, "aftertouch", {"value": 127, "channel": 1})
    notes = [event for start in (0.0, 3.0, 6.0, 9.0) for event in note(start, 2.0, channel=1)]
    player.play([*zone, *slides, press, *notes])
    assert player.facts["not_performed"] == {}
    stretches = ((0.2, 0.9), (3.2, 3.9), (6.2, 6.9), (7.2, 7.9), (9.1, 9.5), (10.0, 10.9))
    brightness = [player.brightness_db(*stretch) for stretch in stretches]
    level = [player.level_db(*stretch) for stretch in stretches]
    again = player.brightness_db(1.2, 1.9), player.brightness_db(0.1, 0.5), player.brightness_db(1.0, 1.9)
    print(np.round(brightness, 1), np.round(level, 1), np.round(again, 1))
    # Of a shelf of twelve decibels the first two partials take a part, too.
    assert 5.0 < brightness[1] - brightness[0] < 12.0
    assert -12.0 < brightness[2] - brightness[0] < -5.0
    assert brightness[3:5] == pytest.approx(again[:2], abs=0.5)
    assert 2.0 < brightness[5] - again[2] < 6.0
    assert level[1:3] == pytest.approx([level[0]] * 2, abs=0.3)
    jump, *around = (
        np.abs(np.diff(player.piece(*part))).max() for part in ((6.99, 7.05), (6.3, 6.99), (7.05, 7.9))
    )
    assert jump <= 1.2 * max(around), "a click"


def test_a_portamento_glides_from_the_note_before(player: Player) -> None:
    events = [*control(0.0, (65, 127), (5, 90)), *note(0.0, 1.0, 60), *note(1.5, 2.0, 67)]
    events += [*control(3.9, (65, 0)), *note(4.0, 1.0, 67)]
    player.play(events)
    seconds = 2.0 * (90 / 127) ** 2
    track = track_pitch(player.piece(1.5, 3.4), player.rate)
    plain = player.cents(4.2, 4.9, 67)
    for at in (0.25, 0.5, 0.75):
        asked = -700.0 * (1 - at / seconds) + plain
        near = np.abs(track.seconds - at) < 0.02
        heard = 100 * (69 + 12 * np.log2(np.median(track.hertz[near & track.voiced]) / 440) - 67)
        assert abs(heard - asked) < 40.0  # a frame late is 19 cents of this glide
    check([player.cents(1.5 + seconds + 0.1, 3.4, 67)], [plain])


@pytest.mark.parametrize(("served_by", "n_lengthened"), [("served", 0), ("bounded", 1)])
def test_a_bent_note_longer_than_the_bundles_goes_on(
    player: Player, served_by: str, n_lengthened: int, request: pytest.FixtureRequest
) -> None:
    player.address = request.getfixturevalue(served_by)
    events = [*note(0.0, 2.0), *note(4.0, 10.0), wheel(4.5, 0), wheel(5.0, 4096), wheel(12.0, -4096)]
    player.play(events)
    plain = player.cents(0.5, 1.9)
    heard = [player.cents(start, start + 1.4) - plain for start in (5.2, 8.5, 10.5, 12.2)]
    check(heard, [100.0, 100.0, 100.0, -100.0])
    levels = [player.level_db(start, start + 0.5) for start in np.arange(5.0, 13.4, 0.5)]
    assert np.ptp(levels) < 6.0 and 14.0 < len(player.audio) / player.rate < 15.0
    assert (player.facts["lengthened"], player.facts["cut"]) == (n_lengthened, 0)


@pytest.mark.parametrize(("timbre", "pitch"), [("Tubular Bells", 40), ("Glass Bowls", 48), ("Violin", 67)])
def test_a_note_lengthened_in_its_codes_sounds_as_if_it_were_held(
    served: str, timbre: str, pitch: int
) -> None:
    with timbrel.Client(served) as client:
        rate = client.model().frame_rate
        note, held = (client.generate(timbre, pitch, seconds=each, seed=1) for each in (2.4, 6.4))
        order = Sustain(TrimmedNote.of(note)).lengthened_frames(note, round(4 * rate), rate)
        lengthened = client.decode(note.codes[order], note.seed)
    assert len(order) == len(note.codes) + round(4 * rate)
    for start in (2.0, 3.0, 4.0, 5.0, 5.9, 6.5):
        part = slice(round(start * note.sample_rate), round((start + 0.5) * note.sample_rate))
        # What is 80 dB below full scale nobody hears, nor whether it is 85.
        levels = [max(rms_db(audio[part]), -75.0) for audio in (lengthened, held.audio)]
        assert levels[0] == pytest.approx(levels[1], abs=1.0), start


def test_scales_and_midi_tuning(player: Player) -> None:
    Path("quarter.scl").write_text("! quarter.scl\n!\n24 quarter tones\n 24\n!\n" + "".join(
        f" {50.0 * number:.5f} cents\n" for number in range(1, 25)
    ))  # fmt: skip
    Path("fifth.kbm").write_text("! one degree of three is missing\n3\n0\n127\n60\n60\n263.14\n3\n0\n1\nx\n")
    arguments = ("--timbre", "Trumpet", "--tuning", "quarter.scl")
    player.play([*note(0.0, 1.0, 60), *note(1.5, 1.0, 61), *note(3.0, 1.0, 64)], *arguments)
    plain = player.cents(0.1, 0.9)
    check([player.cents(1.6, 2.4) - plain, player.cents(3.1, 3.9) - plain], [50.0, 200.0])
    mapped = [*note(0.0, 1.0, 60), *note(1.5, 1.0, 61), *note(3.0, 1.0, 62), *note(4.5, 1.0, 63)]
    player.play(mapped, *arguments, "--keyboard-map", "fifth.kbm")
    raised = 1200 * np.log2(263.14 / 261.6256)
    heard = [player.cents(start + 0.1, start + 0.9) - plain for start in (0.0, 1.5, 4.5)]
    check(heard, [raised, raised + 50, raised + 150])
    assert player.facts["not_performed"] == {"note on a key that the keyboard map leaves out": 1}
    # Key 62 sounds a third of a semitone above 60 (single note change), 61 a flat one (octave form).
    single = exclusive(0.0, 0x7F, 0x7F, 0x08, 0x02, 0, 1, 62, 60, *divmod(round((1 << 14) / 3), 128))
    octave = exclusive(0.0, 0x7E, 0x7F, 0x08, 0x08, 3, 127, 127, 64, 34, *(64,) * 10)
    player.play([single, octave, *note(0.0, 1.0, 62), *note(1.5, 1.0, 61), *note(3.0, 1.0, 60)])
    heard = [player.cents(start + 0.1, start + 0.9) - plain for start in (0.0, 1.5, 3.0)]
    check(heard, [100 / 3, 70.0, 0.0])


def test_drums_are_named_or_played(player: Player, run: Callable[..., tuple[int, str, str]]) -> None:
    events = [*note(0.0, 1.0), *note(2.0, 0.5, 38, channel=9)]
    player.play(events)
    assert player.facts["skipped"]["drums"] == 1 and player.facts["drums_by"] is None
    n_before = len(player.audio)
    status, out, _ = run("play", "piece.mid", "--out", "p.wav", "--server", player.address)
    assert status == 0 and "channel 10 (track 1): 1 drum note left out (--drums FONT.sf2 plays them)" in out
    require_system("fluidsynth", "soundfont")
    player.play(events, "--drums", str(SOUNDFONT))
    assert player.facts["drums_by"] == str(SOUNDFONT) and player.facts["skipped"]["drums"] == 0
    assert len(player.audio) > n_before
    assert player.audio[-player.rate // 10 :].any()  # it ends as the last drum has died away
    assert player.level_db(1.7, 1.9) < -60.0 < -45.0 < player.level_db(2.0, 2.2) < -15.0
    loud = player.level_db(2.0, 2.2)
    player.play([exclusive(1.5, 0x7F, 0x7F, 4, 1, 0, 64), *events], "--drums", str(SOUNDFONT))
    assert player.level_db(2.0, 2.2) - loud == pytest.approx(40 * np.log10(64 / 128), abs=0.5)


def test_drums_that_a_full_disk_cuts_off_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FluidSynth says that it could not write, and ends as if it had."""
    require_module("mido", "midi")
    require_system("fluidsynth", "soundfont")
    import mido

    full = tmp_path / "fluidsynth"
    full.write_text(f"#!/bin/sh\nulimit -f 64\ntrap '' XFSZ\nexec {shutil.which('fluidsynth')} \"$@\"\n")
    full.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(DrumsError, match="write error"):
        play_drums([(0.0, mido.Message("note_on", channel=9, note=38))], SOUNDFONT, 24_000)


def test_a_user_s_own_settings_of_fluidsynth_are_for_other_music(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("mido", "midi")
    require_system("fluidsynth", "soundfont")
    import mido

    drum = [(0.0, mido.Message("note_on", channel=9, note=38))]
    sounds = []
    for content in ("", "gain 0.01\n"):
        (tmp_path / ".fluidsynth").write_text(content)
        monkeypatch.setenv("HOME", str(tmp_path))
        sounds.append(np.abs(play_drums(drum, SOUNDFONT, 24_000)).max())
    assert sounds[0] == pytest.approx(sounds[1], rel=1e-3) and sounds[0] > 0.01


def test_nor_does_fluidsynth_find_them_where_windows_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be louder by them, or play another font."""
    require_module("mido", "midi")
    import mido

    program = tmp_path / "fluidsynth"
    program.write_text('#!/bin/sh\necho "fluidsynth: settings of $USERPROFILE" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("USERPROFILE", "the user")
    with pytest.raises(DrumsError, match=r"settings of .*timbrel-drums-"):
        play_drums([(0.0, mido.Message("note_on", channel=9, note=38))], SOUNDFONT, 24_000)


def test_two_kits_are_played_beside_each_other(
    player: Player, run: Callable[..., tuple[int, str, str]]
) -> None:
    """The second on a channel that Roland's message gives drums: it is no piano."""
    rhythm = exclusive(0.0, 0x41, 0x10, 0x42, 0x12, 0x40, 0x1A, 0x15, 1, 0)
    kits = [*note(1.0, 0.5, 38, channel=9), *note(3.0, 0.5, 36, channel=10)]
    player.play([rhythm, *note(0.0, 0.3), *kits])
    assert player.facts["skipped"]["drums"] == 2 and [part["channel"] for part in player.facts["parts"]] == [
        1
    ]
    _, out, _ = run("play", "piece.mid", "--out", "p.wav", "--server", player.address)
    assert "channel 10 (track 1): 1 drum note left out" in out
    assert "channel 11 (track 1): 1 drum note left out" in out
    require_system("fluidsynth", "soundfont")
    player.play([rhythm, *note(0.0, 0.3), *kits], "--drums", str(SOUNDFONT))
    assert player.facts["skipped"]["drums"] == 0
    assert player.level_db(1.0, 1.2) > -45.0 and player.level_db(3.0, 3.2) > -45.0
    player.play([rhythm, *note(0.0, 0.3), *kits], "--drums", str(SOUNDFONT), "--timbre", "11=Violin")
    assert [part["channel"] for part in player.facts["parts"]] == [1, 11]


def test_the_softest_notes_are_not_taken_for_silence(player: Player) -> None:
    player.play([*note(0.0, 0.5, 40, velocity=1), *note(1.0, 0.5, 60, velocity=1)])
    assert player.facts["silent"] == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--drums", "piece.mid"), "SoundFont"),
        (("--drums", "missing.sf2"), "missing.sf2"),
        (("--tuning", "piece.mid"), "Scala scale"),
        (("--tuning", "missing.scl"), "missing.scl"),
        (("--keyboard-map", "map.kbm"), "--tuning"),
    ],
)
def test_what_is_no_font_and_no_scale_is_one_line(
    player: Player, run: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], word: str
) -> None:
    player.play(note(0.0, 0.2))
    status, out, error = run("play", "piece.mid", "--out", "p.wav", "--server", player.address, *arguments)
    assert (status, out) == (2, "") and error.count("\n") == 1 and word in error


def test_without_fluidsynth_it_is_one_line(
    player: Player, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    player.play(note(0.0, 0.2))
    Path("font.sf2").write_bytes(b"RIFF\4\0\0\0sfbk")
    monkeypatch.setenv("PATH", "")
    command = ("play", "piece.mid", "--out", "p.wav", "--server", player.address, "--drums", "font.sf2")
    status, out, error = run(*command)
    assert status != 0 and out == "" and error.count("\n") == 1 and "apt-get install fluidsynth" in error
