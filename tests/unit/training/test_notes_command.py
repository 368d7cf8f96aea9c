"""`timbrel train notes`, from its arguments to the library."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel_training.config import load_config
from timbrel_training.errors import ConfigError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.general_midi import FAMILIES, PROGRAM_NAMES
from timbrel_training.notes.note import SourceError
from timbrel_training.notes.split import Split
from timbrel_training.stages import STAGES


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    STAGES["notes"].configure(parser)
    return STAGES["notes"].run(parser.parse_args(arguments))


def test_synthetic_notes_become_a_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "notes"
    assert run("--config", "tiny", "--source", "synthetic:Saw Lead", "--out", str(out), "--jobs", "1") == 0
    library = NoteDataset(out)
    assert library.sample_rate == 48_000 and library.licences == {"synthetic Saw Lead": "CC0-1.0"}
    printed = capsys.readouterr().out
    assert f"{len(library)} notes of 2 instruments" in printed and "dropped: " in printed


def test_a_folder_of_recordings_becomes_a_library(tmp_path: Path) -> None:
    (tmp_path / "Kora").mkdir()
    for pitch in (60, 61):
        time = np.arange(8000) / 16_000
        soundfile.write(tmp_path / "Kora" / f"{pitch:03d}.wav", 0.3 * np.sin(pitch * 40 * time), 16_000)
    arguments = ("--config", "tiny", "--out", str(tmp_path / "out"), "--jobs", "1", "--licence", "CC-BY-4.0")
    assert run("--source", f"folder:{tmp_path / 'Kora'}", *arguments) == 0
    library = NoteDataset(tmp_path / "out")
    assert library.instruments == ["Kora"] and list(library.pitch) == [60, 61]
    assert library.sample_rate == 48_000 and library.licences == {"folder Kora": "CC-BY-4.0"}


def test_names_that_are_an_octave_off_are_told_which_note_c4_is(tmp_path: Path) -> None:
    (tmp_path / "Kora").mkdir()
    for name, hertz in (("C3", 261.63), ("D3", 293.66)):  # as Yamaha counts octaves
        turn = 2 * np.pi * hertz * np.arange(16_000) / 16_000
        tone = sum(0.2 / n * np.sin(n * turn) for n in range(1, 8))
        soundfile.write(tmp_path / "Kora" / f"{name}.wav", tone, 16_000)
    arguments = ("--config", "tiny", "--set", "notes.check_pitch=true", "--out", str(tmp_path / "out"))
    with pytest.raises(SourceError, match=r"2 not at the pitch asked; in names, C4 is MIDI note 60$"):
        run("--source", f"folder:{tmp_path / 'Kora'}", "--jobs", "1", *arguments)


def test_a_config_can_name_its_sources_and_hold_out_a_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "two.toml"
    config.write_text(
        "[notes]\nn_draws = 1\nn_members = 1\nlow_pitch = 60\nhigh_pitch = 61\nmax_held_seconds = 0.3\n"
        'held_out_instruments = ["Saw Leed"]\nheld_out_families = ["Organ"]\ncheck_pitch = true\n'
        "cell_fraction = 0.0\n"
        '[[notes.sources]]\nsource = "synthetic:Tonewheel Organ"\n'
        '[[notes.sources]]\nsource = "synthetic:Saw Lead"\n'
    )
    out = tmp_path / "out"
    assert run("--config", str(config), "--out", str(out), "--jobs", "1") == 0
    library = NoteDataset(out)
    assert library.instruments == ["Tonewheel Organ", "Saw Lead"]
    found = {(library.name(i), int(split)) for i, split in enumerate(library.split)}
    assert found == {("Tonewheel Organ", Split.HELD_OUT_INSTRUMENT), ("Saw Lead", Split.TRAIN)}
    assert max(library.held_seconds) < 0.32
    assert "\n  held out by name, but not there: Saw Leed\n" in capsys.readouterr().out


def test_without_a_source_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"give --source soundfont:FILE.* or \[\[notes\.sources\]\] in the config"
    ):
        run("--config", "tiny", "--out", str(tmp_path / "out"))


def test_a_source_of_the_config_that_is_not_there_is_said_to_be_fetched_first(tmp_path: Path) -> None:
    lacking = f"soundfont:{tmp_path}/FluidR3_GM.sf2"
    (config := tmp_path / "own.toml").write_text(f'[[notes.sources]]\nsource = "{lacking}"\n')
    arguments = "--config", str(config), "--out", str(tmp_path / "out")
    told = "no such soundfont; it is a source of the config: .*README.* are fetched, --source names others"
    with pytest.raises(SourceError, match=told):
        run(*arguments)
    with pytest.raises(SourceError, match=r"no such soundfont$"):
        run(*arguments, "--source", lacking)


def test_the_band_names_what_there_is() -> None:
    band = load_config("band").notes
    assert band.max_held_seconds == 15.0 and set(band.held_out_families) < set(FAMILIES)
    assert len(band.held_out_instruments) == 5 and set(band.held_out_instruments) <= set(PROGRAM_NAMES)
    names = []
    for each in band.sources:
        kind, _, path = each.source.partition(":")
        assert kind in ("soundfont", "sfz", "synthetic")
        if kind == "sfz":
            assert each.licence and each.family in FAMILIES
            names.append(each.instrument or Path(path).stem)
    assert len(set(names)) == len(names) >= 12


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vinyl:x", "'vinyl' is not a kind of source; expected soundfont:FILE"),
        ("soundfont", "'soundfont' is not a source; expected soundfont:FILE"),
        ("synthetic:Theremin", "no synthetic instrument 'Theremin'; expected all or one of Nylon String"),
        ("sfz:/missing.sfz", r"/missing\.sfz: there is no such file"),
        ("soundfont:/missing.sf2", r"/missing\.sf2: no such soundfont"),
        ("folder:/missing", "/missing: no such folder"),
        ("nsynth:/missing", r"/missing/examples\.json: No such file"),
    ],
)
def test_a_bad_source_is_one_clear_line_and_leaves_nothing(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        run("--source", source, "--out", str(tmp_path / "notes"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", ["0", "-2", "two"])
def test_less_than_one_process_is_refused(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--out", "notes", "--jobs", jobs)
    assert f"must be a whole number from 1, got '{jobs}'" in capsys.readouterr().err


def test_fields_can_be_overridden(tmp_path: Path) -> None:
    out = tmp_path / "notes"
    arguments = ("--config", "tiny", "--source", "synthetic:Saw Lead", "--out", str(out), "--jobs", "1")
    assert run(*arguments, "--set", "notes.high_pitch=60", "--set", "notes.cell_fraction=0.0") == 0
    library = NoteDataset(out)
    assert set(library.pitch) == {60} and set(library.split) == {Split.TRAIN}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("notes.low_pitch=90", "pitches must be 0 <= low <= high <= 127, got 90, 63"),
        ("notes.n_draws=0", "n_draws must be positive, got 0"),
        ("notes.cell_fraction=1.5", "cell_fraction must be at least 0 and below 1, got 1.5"),
        ("notes.programs=[0, 128]", "programs must be 0 to 127, got 128"),
    ],
)
def test_a_bad_field_is_one_clear_line(tmp_path: Path, assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(
            "--config",
            "tiny",
            "--source",
            "synthetic:Saw Lead",
            "--out",
            str(tmp_path / "notes"),
            "--set",
            assignment,
        )
    assert not list(tmp_path.iterdir())
