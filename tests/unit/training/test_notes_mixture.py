"""Several sources as one, and several fonts that share an instrument's notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import soundfile
from requirements_gate import find_soundfont, require_module, require_sfizz, require_system
from simple_notes import SyntheticSource

from timbrel_training.notes.config import NotesConfig, SourceConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.fonts import distance, plan_fonts, reference_soundings
from timbrel_training.notes.note import Note, SourceError
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.sfz import SfzSource
from timbrel_training.notes.soundfont import SoundfontSource
from timbrel_training.notes.sources import MixedSource, open_sources
from timbrel_training.notes.split import SplitRule

PIANO, HARPSICHORD, TRUMPET, OBOE = 0, 6, 56, 68


def fluid_r3() -> Path:
    """FluidR3's file; skips where it, or what plays it, is not installed."""
    require_system("fluidsynth", "soundfont")
    require_module("fluidsynth", "train")
    path = find_soundfont()
    assert path is not None
    return path


def test_a_mixture_has_the_notes_of_all_its_sources(tmp_path: Path) -> None:
    few = SyntheticSource(n_instruments=1, pitches=(60,), n_draws=2)
    more = SyntheticSource(n_instruments=2, pitches=(62, 64), n_draws=1)
    more.name, more.licence = "other", "MIT"
    mixture = MixedSource([few, more])
    assert len(list(mixture)) == 6
    assert [note.source for group in mixture.groups() for note in mixture.notes(group)] == [
        note.source for note in mixture
    ]
    render_dataset(mixture, tmp_path / "notes", jobs=1)
    library = NoteDataset(tmp_path / "notes")
    assert library.sources == ["synthetic", "other"]
    assert library.licences == {"synthetic": "CC0-1.0", "other": "MIT"}
    assert np.bincount(library.source).tolist() == [2, 4]
    assert set(library.pitch[library.source == 1]) == {62, 64}


def test_what_cannot_be_read_is_found_before_anything_is_rendered(tmp_path: Path) -> None:
    require_sfizz("train")
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "060.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt ")
    (tmp_path / "empty.sfz").write_text("<region>\nsample=nowhere.wav\n")
    rendered: list[str] = []

    class Watched(SyntheticSource):
        def notes(self, group: str) -> Iterator[Note]:
            rendered.append(group)
            return super().notes(group)

    first = Watched(n_instruments=1, pitches=(60,), sample_rate=48_000)
    for last, message in (
        (FolderSource(tmp_path / "samples"), r"060\.wav: not a readable sound file"),
        (SfzSource(tmp_path / "empty.sfz"), r"empty\.sfz: no region can be played"),
    ):
        with pytest.raises(SourceError, match=message):
            render_dataset(MixedSource([first, last]), tmp_path / "notes", jobs=1)
    assert not rendered and not list(tmp_path.glob("notes*"))


def test_sources_that_cannot_be_mixed_are_one_clear_line() -> None:
    with pytest.raises(SourceError, match="at least one source"):
        MixedSource([])
    with pytest.raises(SourceError, match="must agree in their sample rate"):
        MixedSource([SyntheticSource(), SyntheticSource(sample_rate=48_000)])


def test_sources_of_one_name_keep_the_licences_of_all() -> None:
    first, second, third = (SyntheticSource() for _ in range(3))
    first.licence, second.licence, third.licence = "CC BY-NC 4.0", "CC0-1.0", "CC0-1.0"
    assert MixedSource([first, second, third]).licences == {first.name: "CC BY-NC 4.0; CC0-1.0"}


def test_a_licence_given_is_that_of_the_sources_whose_own_is_not_known(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        soundfile.write(tmp_path / name / "060.wav", np.full(100, 0.1), 16_000)
    theirs = SourceConfig(f"folder:{tmp_path / 'theirs'}", "MIT", "Kora", "Harps")
    lines: list[str] = []
    mixture = open_sources(
        [f"folder:{tmp_path / 'mine'}", theirs, "synthetic:Saw Lead"],
        NotesConfig(),
        "CC BY 4.0",
        lines.append,
    )
    named = next(mixture.notes("1/Kora"))
    assert mixture.groups()[:2] == ["0/mine", "1/Kora"] and (named.instrument, named.family) == (
        "Kora",
        "Harps",
    )
    assert mixture.licences == {
        "folder mine": "CC BY 4.0",
        "folder theirs": "MIT",
        "synthetic Saw Lead": "CC0-1.0",
    }
    assert lines == [
        f"{theirs.source}: its licence stays 'MIT'",
        "synthetic:Saw Lead: its licence stays 'CC0-1.0'",
    ]
    lines.clear()
    open_sources([theirs, f"folder:{tmp_path / 'mine'}"], NotesConfig(), tell=lines.append)
    assert lines == [
        f"folder:{tmp_path / 'mine'}: its licence is unknown, as bundles will say; --licence states it"
    ]


@pytest.mark.parametrize(
    ("played", "lines"),
    [
        ((TRUMPET,), ["held out whole: Oboe, which no font plays"]),
        ((OBOE,), ["held out whole: Oboe, with nothing to train on beside it"]),
    ],
)
def test_a_held_out_instrument_without_a_neighbour_is_told(
    played: tuple[int, ...], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = {program: [np.zeros((3, 80), np.float32)] for program in played}
    monkeypatch.setattr("timbrel_training.notes.fonts.reference_soundings", lambda *_: heard)
    config = NotesConfig(programs=(TRUMPET, OBOE), held_out_instruments=("Oboe",))
    font = SimpleNamespace(font=Path("a.sf2"), programs=config.programs)
    assert list(plan_fonts([cast(SoundfontSource, font)], config).report) == lines


def test_one_program_is_nearer_to_itself_than_to_another() -> None:
    heard = reference_soundings(fluid_r3(), (HARPSICHORD, TRUMPET, OBOE))
    assert distance(heard[TRUMPET], heard[TRUMPET]) == 0.0
    assert distance(heard[TRUMPET], heard[OBOE]) > 3.0


def test_fonts_that_sound_alike_share_the_draws_of_a_cell() -> None:
    font = fluid_r3()
    config = NotesConfig(programs=(TRUMPET,), n_draws=5)
    fonts = [SoundfontSource(font, programs=config.programs, n_draws=5) for _ in range(2)]
    plan = plan_fonts(fonts, config)
    assert [list(draws[TRUMPET]) for draws in plan.draws] == [[0, 2, 4], [1, 3]] and not plan.report


def test_a_font_that_sounds_otherwise_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = NotesConfig(programs=(TRUMPET,), n_draws=3)
    font = fluid_r3()
    heard = reference_soundings(font, (TRUMPET, OBOE))
    versions = iter([{TRUMPET: heard[TRUMPET]}, {TRUMPET: heard[OBOE]}])
    monkeypatch.setattr("timbrel_training.notes.fonts.reference_soundings", lambda *_: next(versions))
    plan = plan_fonts([SoundfontSource(font, programs=(TRUMPET,)) for _ in range(2)], config)
    assert plan.draws == ({TRUMPET: range(3)}, {})
    [line] = plan.report
    assert line.startswith("Trumpet of ") and "left out: " in line
    versions = iter([{TRUMPET: heard[TRUMPET]}, {TRUMPET: heard[OBOE]}])
    own = plan_fonts(
        [SoundfontSource(font, programs=(TRUMPET,)) for _ in range(2)], replace(config, distant_fonts=True)
    )
    name = "Trumpet of FluidR3 GM"
    assert own.draws == ({TRUMPET: range(3)}, {TRUMPET: range(3)}) and own.names == ({}, {TRUMPET: name})
    assert all(SplitRule().split_of(name, p) is SplitRule().split_of("Trumpet", p) for p in range(33, 97))


def test_held_out_instruments_are_told_with_their_nearest_neighbour() -> None:
    lines: list[str] = []
    config = NotesConfig(
        programs=(HARPSICHORD, TRUMPET, OBOE), held_out_instruments=("Oboe",), n_draws=1, low_pitch=60,
        high_pitch=60,
    )  # fmt: skip
    open_sources([f"soundfont:{fluid_r3()}"], config, tell=lines.append)
    assert len(lines) == 1 and lines[0].startswith("held out whole: Oboe, ") and "dB from Trumpet" in lines[0]


@pytest.mark.parametrize(
    ("licence", "name"), [("mine\nall rights", "a"), ("x" * 1001, "a"), ("MIT", "a\x07")]
)
def test_texts_that_no_bundle_may_have_are_refused_before_they_are_trained_on(
    tmp_path: Path, licence: str, name: str
) -> None:
    source = SyntheticSource()
    source.licence, source.name = licence, name
    with pytest.raises(SourceError, match=r"printable characters, got|characters that cannot be printed"):
        render_dataset(source, tmp_path / "out", 1)
    assert not list(tmp_path.iterdir())


def test_an_instrument_of_two_sources_is_one_instrument(tmp_path: Path) -> None:
    sources = [SyntheticSource(1, (60,), 1), SyntheticSource(1, (61,), 1), SyntheticSource(1, (62,), 1)]
    names = [("Reed", "Unknown"), ("reed ", "Winds"), ("REED", "Keys")]

    def named(source: SyntheticSource, instrument: str, family: str) -> None:
        notes = source.notes
        source.notes = lambda group: (  # type: ignore[method-assign]
            replace(note, instrument=instrument, family=family) for note in notes(group)
        )

    for source, (instrument, family) in zip(sources, names, strict=True):
        named(source, instrument, family)
    render_dataset(MixedSource(sources), tmp_path / "out", 1)
    library = NoteDataset(tmp_path / "out")
    assert list(library.instruments) == ["Reed"] and list(library.instrument_families) == ["Winds"]
    assert sorted(library.pitch.tolist()) == [60, 61, 62]
