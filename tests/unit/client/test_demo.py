from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module

from timbrel import Instrument, MissingExtraError, Note
from timbrel.demo import (
    LOWEST_PITCH,
    ROWS_PER_SEMITONE,
    RenderedNote,
    draw,
    draw_instruments,
    notes_json,
    plan_notes,
    spectrogram,
    summary,
    table,
)
from timbrel.pitch import midi_pitch

FAMILIES = ("Strings", "Winds", "Keys")
MAP = [
    Instrument(f"{family} {number}", family, (0.0, 0.0), 21, 108)
    for family in FAMILIES
    for number in range(5)
]
BUNDLE_RANGE = (30, 100)


def test_draws_the_same_whatever_the_order_of_the_map() -> None:
    assert plan_notes(MAP, 3, 4, BUNDLE_RANGE) == plan_notes(MAP[::-1], 3, 4, BUNDLE_RANGE)


def test_takes_every_family_before_any_twice() -> None:
    assert {each.family for each in draw_instruments(MAP, 3)} == set(FAMILIES)
    drawn = [each.family for each in draw_instruments(MAP, 7)]
    assert sorted(map(drawn.count, FAMILIES)) == [2, 2, 3]


def test_pitches_stay_where_instrument_bundle_and_tracker_reach_and_are_spread() -> None:
    flute = Instrument("Flute", "Winds", (0.0, 0.0), 60, 96)
    pitches = [note.pitch for note in plan_notes([flute], 1, 4, (30, 90))]
    assert len(set(pitches)) == 4
    assert pitches == sorted(pitches)
    assert 60 <= pitches[0] < 68 and 82 < pitches[-1] <= 90
    wide = plan_notes(MAP, 15, 6, (0, 127))
    assert all(36 <= note.pitch <= 94 for note in wide)


def test_leaves_out_what_never_sounds_within_the_limits() -> None:
    piccolo = Instrument("Piccolo", "Winds", (0.0, 0.0), 95, 108)
    narrow = Instrument("Narrow", "Keys", (0.0, 0.0), 60, 61)
    plan = plan_notes([piccolo, narrow], 2, 4, (0, 127))
    assert [(note.instrument.name, note.pitch) for note in plan] == [("Narrow", 60), ("Narrow", 61)]
    assert plan_notes([], 3, 4, BUNDLE_RANGE) == []


def test_files_are_named_by_the_midi_number() -> None:
    note = plan_notes([Instrument("Tremolo / Strings", "Strings", (0.0, 0.0), 60, 60)], 1, 1, BUNDLE_RANGE)[0]
    assert note.file_name == "tremolo-strings_060.wav"


RATE = 8000
TONE = (0.5 * np.sin(2 * np.pi * 1000.0 * np.arange(RATE) / RATE)).astype(np.float32)


def rendered(instrument: str, pitch: int, measured: float | None) -> RenderedNote:
    codes = np.zeros((4, 2), np.uint16)
    note = Note((0.5, -0.25), pitch, 100, 1.5, 1, False, codes, RATE, lambda *_: TONE)
    return RenderedNote(f"{instrument.lower()}_{pitch:03d}.wav", instrument, note, measured, 0.5)


RESULTS = [rendered("Violin", 60, 60.1), rendered("Violin", 72, 60.0), rendered("Flute", 80, None)]


def test_the_table_has_a_line_a_note() -> None:
    heading, *lines = table(RESULTS).splitlines()
    assert heading.split()[:2] == ["file", "timbre"]
    assert "violin_060.wav" in lines[0] and "+10" in lines[0] and "2.0" in lines[0]
    assert "-1200" in lines[1]
    assert "unvoiced" in lines[2]


def test_counts_what_is_in_tune() -> None:
    assert summary(RESULTS) == "1 of 3 within 50 cents"


def test_the_json_lists_the_notes() -> None:
    notes = json.loads(notes_json(RESULTS))
    assert [note["pitch_measured"] for note in notes] == [60.1, 60.0, None]
    assert notes[0]["timbre"] == [0.5, -0.25]
    assert {"file", "timbre", "pitch", "velocity", "seconds", "seed", "pitch_measured"} <= notes[0].keys()


def test_the_spectrogram_is_loudest_at_the_tone() -> None:
    level = spectrogram(TONE, RATE)
    loudest = LOWEST_PITCH + level[:, level.shape[1] // 2].argmax() / ROWS_PER_SEMITONE
    assert loudest == pytest.approx(midi_pitch(1000.0), abs=1.0)
    assert level.max() - level.min() <= 80.0
    assert np.isfinite(spectrogram(np.zeros(0, np.float32), RATE)).all()


def test_draws_one_picture_with_rows_of_unequal_length(tmp_path: Path) -> None:
    require_module("matplotlib", "demo")
    path = tmp_path / "picture.png"
    draw(RESULTS, path)
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    draw(RESULTS, path)
    assert path.read_bytes() == first


def test_a_long_name_stays_beside_its_own_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_module("matplotlib", "demo")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **settings: Any) -> None:
        save(figure, *args, **settings)
        renderer = FigureCanvasAgg(figure).get_renderer()
        for axis in figure.axes:
            if axis.get_ylabel():
                label, row = axis.yaxis.label.get_window_extent(renderer), axis.get_window_extent(renderer)
                labels.append((label.x0, label.height, row.height))

    monkeypatch.setattr(Figure, "savefig", keep)
    names = ("Acoustic Guitar (steel) of MuseScore General", "Bright Acoustic Piano of MuseScore General")
    draw([rendered(name, 60, 60.0) for name in names], tmp_path / "picture.png")
    assert len(labels) == 2
    assert all(left >= 0.0 and height <= row for left, height, row in labels), labels


def test_a_user_s_own_settings_are_for_other_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("matplotlib", "demo")
    import matplotlib

    path = tmp_path / "picture.png"
    draw(RESULTS, path)
    first = path.read_bytes()
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "axes.titlesize", 30.0)
    draw(RESULTS, path)
    assert path.read_bytes() == first and matplotlib.rcParams["text.usetex"]


def test_a_name_with_dollars_is_no_mathematics(tmp_path: Path) -> None:
    require_module("matplotlib", "demo")
    draw([rendered(r"$\nothing$", 60, 60.0)], tmp_path / "picture.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"timbrel\[demo\]"):
        draw(RESULTS, tmp_path / "picture.png")
