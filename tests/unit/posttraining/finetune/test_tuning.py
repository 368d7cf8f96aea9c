"""Samples that are not in tune with their names: heard, named, mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel.pitch import frequency
from timbrel_bundle.yin import Yin
from timbrel_posttraining.finetune.tuning import check_tuning
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.note import SourceError

RATE = 24_000


@pytest.fixture
def samples(tmp_path: Path) -> FolderSource:
    """A reed whose C4 is in tune, whose E4 is 35 cents sharp, and whose G3 is called by another octave."""
    time = np.arange(RATE) / RATE
    for name, pitch in (("C4", 60.0), ("E4", 64.35), ("G3", 67.0)):
        partials = [np.sin(2 * np.pi * n * frequency(pitch) * time) / n for n in (1, 2, 3, 4)]
        soundfile.write(tmp_path / f"reed_{name}_mf.wav", 0.2 * sum(partials), RATE)
    return FolderSource(tmp_path)


def test_what_is_off_is_named_and_stays(samples: FolderSource) -> None:
    told: list[str] = []
    assert check_tuning(samples, False, told.append) is samples
    assert told[0] == "2 of 3 samples are more than 20 cents off, and are learnt so: --retune mends them:"
    assert told[1].startswith("  reed_E4_mf.wav: +35 cents from note 64")
    assert told[2].startswith("  reed_G3_mf.wav: +1") and "another octave's name" in told[2]
    assert "sounds like note 67" in told[2]


def test_retuned_samples_sound_at_their_notes(samples: FolderSource) -> None:
    retuned = check_tuning(samples, True, lambda line: None)
    assert retuned.settings() != samples.settings()
    yin = Yin()
    for note in retuned:
        heard = yin.measure(note.audio, note.sample_rate)
        assert heard is not None and abs(heard - note.pitch) < 0.05
    assert sorted(note.pitch for note in retuned) == [60, 64, 67]


def test_what_is_too_short_is_named_and_left_out(samples: FolderSource, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "reed_C5_mf.wav", 0.5 * np.sin(np.arange(240) / 4), RATE)
    told: list[str] = []
    kept = check_tuning(FolderSource(tmp_path), False, told.append)
    assert told[0] == "left out: reed_C5_mf.wav holds 0.010 s of sound, 0.05 s at least are needed"
    assert [entry.pitch for entry in kept.entries] == [entry.pitch for entry in samples.entries]
    decay = 0.5 * np.sin(np.arange(RATE // 4) / 4) * 10 ** (-3 * np.arange(RATE // 4) / (0.055 * RATE))
    soundfile.write(
        tmp_path / "reed_C5_mf.wav", decay, RATE
    )  # the timbre encoder hears less than the cleaner
    check_tuning(FolderSource(tmp_path), False, told.append)
    assert any(line.startswith("left out: reed_C5_mf.wav holds 0.04") for line in told)
    for path in tmp_path.glob("reed_[EG]*.wav"):
        path.unlink()
    (tmp_path / "reed_C4_mf.wav").unlink()
    with pytest.raises(SourceError, match=r"no sample holds 0\.05 s of sound"):
        check_tuning(FolderSource(tmp_path), False, told.append)


def test_what_is_clipped_is_named_and_what_is_normalised_is_not(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * frequency(60) * np.arange(RATE) / RATE)
    for name, audio in (("mf", tone / np.abs(tone).max()), ("ff", np.clip(1.5 * tone, -1.0, 1.0))):
        soundfile.write(tmp_path / f"reed_C4_{name}.wav", np.stack([audio, audio], 1), RATE)
    told: list[str] = []
    assert len(check_tuning(FolderSource(tmp_path), False, told.append).entries) == 2
    assert told == ["flat at full scale, as what is clipped is, and learnt so: reed_C4_ff.wav"]


def test_samples_that_a_table_names_may_lie_anywhere(samples: FolderSource, tmp_path: Path) -> None:
    """Those that are off are named, though they are not in the folder of the table."""
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "notes.csv").write_text(f"file,pitch\n{tmp_path}/reed_E4_mf.wav,64\n../reed_C4_mf.wav,60\n")
    told: list[str] = []
    check_tuning(FolderSource(folder), False, told.append)
    assert told[1].strip().startswith("../reed_E4_mf.wav: +35 cents")


def test_notes_below_what_the_trackers_hear_stay_as_they_are_called(tmp_path: Path) -> None:
    """Of a bass whose second partial is its strongest, trackers hear the lowest notes as others."""
    time = np.arange(2 * RATE) / RATE
    for pitch in (23, 26, 28, 29, 30, 31, 33, 40):
        strengths = enumerate((0.35, 1.0, 0.5, 0.45, 0.2, 0.25, 0.1, 0.1), 1)
        partials = [s * np.sin(2 * np.pi * n * frequency(pitch) * time + n) for n, s in strengths]
        soundfile.write(tmp_path / f"bass_{pitch:03d}.wav", 0.1 * sum(partials) * np.exp(-time), RATE)
    told: list[str] = []
    source = FolderSource(tmp_path)
    assert check_tuning(source, True, told.append) is source and told == []


def test_notes_above_what_the_trackers_hear_stay_as_they_are_called(tmp_path: Path) -> None:
    """As of a glockenspiel: both trackers hear them an octave lower."""
    time = np.arange(RATE) / RATE
    for pitch in (95, 96, 97, 100, 102, 104, 106):
        tone = np.sin(2 * np.pi * frequency(pitch) * time) * np.exp(-3 * time)
        soundfile.write(tmp_path / f"bells_{pitch:03d}.wav", 0.5 * tone, RATE)
    told: list[str] = []
    source = FolderSource(tmp_path)
    assert check_tuning(source, True, told.append) is source and told == []


def test_a_retuned_sample_is_held_for_as_long_as_it_takes(samples: FolderSource, tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("file,held_seconds\nreed_E4_mf.wav,0.8\nreed_C4_mf.wav,0.8\n")
    c4, e4 = sorted(check_tuning(FolderSource(tmp_path), True, print), key=lambda note: note.pitch)
    assert c4.held_seconds == 0.8 and len(c4.audio) == RATE
    assert e4.held_seconds == pytest.approx(0.8 * len(e4.audio) / RATE, abs=1e-3)
    assert e4.held_seconds == pytest.approx(0.8 * 2 ** (35 / 1200), abs=2e-3)
