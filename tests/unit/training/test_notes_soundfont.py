"""Notes rendered from FluidR3."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from requirements_gate import find_soundfont, require_module, require_system

from timbrel_training.config import load_config
from timbrel_training.notes import playing
from timbrel_training.notes.cleaning import SILENCE_PEAK
from timbrel_training.notes.general_midi import (
    DROPPED_PROGRAMS,
    FAMILIES,
    MELODIC_PROGRAMS,
    PROGRAM_NAMES,
    family_of,
)
from timbrel_training.notes.note import Draw, SourceError
from timbrel_training.notes.playing import NoteRecorder
from timbrel_training.notes.soundfont import SoundfontSource

PIANO, ORGAN, VIOLIN, TRUMPET = 0, 20, 40, 56


def fluid_r3() -> Path:
    """FluidR3's file; skips where it, or what plays it, is not installed."""
    require_system("fluidsynth", "soundfont")
    require_module("fluidsynth", "train")
    path = find_soundfont()
    assert path is not None
    return path


def empty_font(folder: Path) -> Path:
    """A file that looks like a soundfont from outside."""
    font = folder / "empty.sf2"
    font.write_bytes(b"RIFF" + (4).to_bytes(4, "little") + b"sfbk")
    return font


def test_notes_do_not_depend_on_what_was_played_before() -> None:
    font = fluid_r3()
    source = SoundfontSource(font, programs=(PIANO, VIOLIN), pitches=(60, 64), n_draws=2)
    alone = {
        (n.instrument, n.pitch, n.velocity): n for g in reversed(source.groups()) for n in source.notes(g)
    }
    again = pickle.loads(pickle.dumps(source))
    for note in again:
        assert np.array_equal(note.audio, alone[note.instrument, note.pitch, note.velocity].audio)
    fewer = SoundfontSource(font, programs=(VIOLIN,), pitches=(64,), n_draws=1)
    [note] = fewer
    assert np.array_equal(note.audio, alone[note.instrument, note.pitch, note.velocity].audio)


def test_the_key_goes_down_at_sample_0_or_within_the_onset() -> None:
    font = fluid_r3()
    for note in SoundfontSource(font, programs=(PIANO, TRUMPET), pitches=(48, 72), n_draws=3):
        sounding = np.flatnonzero(np.abs(note.audio) > 1e-3 * np.abs(note.audio).max())
        assert sounding[0] < 0.015 * note.sample_rate


def test_onsets_differ_from_draw_to_draw_where_that_is_asked() -> None:
    font = fluid_r3()
    source = SoundfontSource(
        font, programs=(PIANO,), pitches=(60,), n_draws=6, recorder=NoteRecorder(onset_seconds=0.005)
    )
    onsets = [int(np.flatnonzero(note.audio)[0]) for note in source]
    assert len(set(onsets)) == 6 and max(onsets) < 0.008 * 48_000
    at_once = SoundfontSource(font, programs=(PIANO,), pitches=(60,), n_draws=6)
    assert len({int(np.flatnonzero(note.audio)[0]) for note in at_once}) == 1


def test_notes_say_what_they_are() -> None:
    font = fluid_r3()
    source = SoundfontSource(font, programs=(VIOLIN,), pitches=(60,), n_draws=2, licence="MIT")
    notes = list(source)
    assert len(notes) == 2 and source.licence == "MIT"
    for note in notes:
        assert (note.instrument, note.family, note.pitch, note.source) == (
            "Violin",
            "Strings",
            60,
            "soundfont FluidR3_GM.sf2",
        )
        assert note.sample_rate == 48_000 and note.audio.dtype == np.float32 and note.audio.ndim == 1


def test_a_held_note_lasts_through_its_hold_and_then_dies_away() -> None:
    font = fluid_r3()
    for note in SoundfontSource(font, programs=(ORGAN,), pitches=(60,), n_draws=6):
        peak = float(np.abs(note.audio).max())
        if peak < SILENCE_PEAK:
            continue
        assert note.held_seconds < note.seconds < note.held_seconds + 1.0 and not note.cut
        block = note.sample_rate // 100
        tail = float(np.abs(note.audio[-block:]).max())
        assert tail < max(3e-3 * peak, 2.0**-15)  # the dither of FluidSynth's 16 bits


def test_a_note_is_cut_at_the_limit_with_a_fade() -> None:
    font = fluid_r3()
    source = SoundfontSource(
        font, programs=(ORGAN,), pitches=(60,), n_draws=6, recorder=NoteRecorder(max_seconds=0.2)
    )
    cut = [note for note in source if note.cut]
    assert cut
    for note in cut:
        assert note.seconds <= 0.2 and note.audio[-1] == 0


def test_nothing_clips_at_the_highest_velocity(monkeypatch: pytest.MonkeyPatch) -> None:
    font = fluid_r3()
    monkeypatch.setattr(playing, "draw_note", lambda *_, **__: Draw(127, 0.5, 0.0))
    loudest = max(
        float(np.abs(note.audio).max(initial=0.0))
        for note in SoundfontSource(font, programs=MELODIC_PROGRAMS, pitches=(40, 64, 88), n_draws=1)
    )
    assert 0.3 < loudest < 0.95


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such soundfont"):
        SoundfontSource(tmp_path / "missing.sf2")
    broken = tmp_path / "broken.sf2"
    broken.write_bytes(b"RIFF" + bytes(100))
    with pytest.raises(SourceError, match=r"broken\.sf2: not a soundfont"):
        SoundfontSource(broken)
    broken.write_bytes(b"RIFF\xff\0\0\0sfbk")
    with pytest.raises(SourceError, match="truncated, 12 bytes of 263"):
        SoundfontSource(broken)


def test_an_empty_font_is_one_clear_line(tmp_path: Path) -> None:
    require_system("fluidsynth")
    require_module("fluidsynth", "train")
    with pytest.raises(SourceError, match="not a soundfont that FluidSynth can load"):
        next(iter(SoundfontSource(empty_font(tmp_path))))


@pytest.mark.parametrize("sample_rate", [7_000, 192_000])
def test_rates_that_fluidsynth_would_play_out_of_tune_are_refused(tmp_path: Path, sample_rate: int) -> None:
    with pytest.raises(
        SourceError, match=f"renders at 8000 to 96000 Hz, not at {sample_rate}; choose another"
    ):
        SoundfontSource(empty_font(tmp_path), recorder=NoteRecorder(sample_rate=sample_rate))


def test_without_fluidsynth_the_message_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    font = empty_font(tmp_path)
    monkeypatch.setitem(sys.modules, "fluidsynth", None)
    with pytest.raises(SourceError, match="install the system package fluidsynth"):
        next(iter(SoundfontSource(font)))


def test_dropped_programs_are_refused_with_the_reason(tmp_path: Path) -> None:
    font = empty_font(tmp_path)
    with pytest.raises(SourceError, match=r"program 9 \(Glockenspiel\) is dropped: sounds"):
        SoundfontSource(font, programs=(0, 9))


def test_the_program_lists_are_sound() -> None:
    assert len(PROGRAM_NAMES) == len(set(PROGRAM_NAMES)) == 128 and len(FAMILIES) == 16
    dropped = {9, 16, 17, 18, 31, 47, 55, 86, 97, *range(112, 128)}
    assert set(DROPPED_PROGRAMS) == dropped and all(DROPPED_PROGRAMS.values())
    chosen = load_config("cpu").notes
    trained = {p for p in chosen.programs if PROGRAM_NAMES[p] not in chosen.held_out_instruments}
    assert len(set(chosen.programs)) == len(chosen.programs) and set(chosen.programs) <= set(MELODIC_PROGRAMS)
    assert set(chosen.held_out_instruments) == {PROGRAM_NAMES[p] for p in set(chosen.programs) - trained}
    assert len(trained) >= 30 and {family_of(p) for p in trained} == {family_of(p) for p in MELODIC_PROGRAMS}
