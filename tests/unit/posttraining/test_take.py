"""How often, at which pitches and from which onset a recording is learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel_posttraining.finetune.take import Take, plan_takes
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.posttraining_config import FineTuneConfig

RATE = 16_000
CONFIG = FineTuneConfig(onset_variants=2, semitones=2)


@pytest.fixture
def library(tmp_path: Path) -> NoteDataset:
    """A sine of 60, 61 and 65, and one of 60 by another instrument, a second each."""
    time = np.arange(RATE) / RATE
    (tmp_path / "takes").mkdir()
    for name, pitch in (("a", 60), ("a", 61), ("a", 65), ("b", 60)):
        hertz = 440.0 * 2 ** ((pitch - 69) / 12) * (1 if name == "a" else 2)
        soundfile.write(
            tmp_path / "takes" / f"{name}_{pitch:03d}.wav", 0.5 * np.sin(2 * np.pi * hertz * time), RATE
        )
    source = FolderSource(tmp_path / "takes", sample_rate=RATE)
    render_dataset(source, tmp_path / "library", 1, rule=SplitRule(0.0))
    return NoteDataset(tmp_path / "library")


def pitches(library: NoteDataset, takes: list[Take], name: str) -> list[int]:
    """At which pitches an instrument is learnt anew, by repitching."""
    return sorted(
        int(library.pitch[take.row]) + take.semitones
        for take in takes
        if take.semitones and library.name(take.row) == name
    )


def test_gaps_between_recordings_are_filled(library: NoteDataset) -> None:
    takes = plan_takes(library, range(4), (0, 127), CONFIG)
    assert sum(not take.semitones for take in takes) == 2 * 4
    assert pitches(library, takes, "a") == [58, 59, 59, 62, 62, 63, 63, 64, 66, 67]
    assert pitches(library, takes, "b") == [58, 59, 61, 62]
    assert all(0.0 <= take.delay < 1.0 for take in takes)


def test_no_take_leaves_the_bundles_range(library: NoteDataset) -> None:
    takes = plan_takes(library, range(4), (60, 65), CONFIG)
    assert set(pitches(library, takes, "a")) == {62, 63, 64}


def test_what_is_held_out_is_not_learnt_by_repitching(library: NoteDataset) -> None:
    library.index["split"][library.pitch == 61] = Split.HELD_OUT_CELL
    takes = plan_takes(library, range(4), (0, 127), CONFIG)
    assert 61 not in pitches(library, takes, "a")
    assert all(take.semitones == 0 for take in takes if library.pitch[take.row] == 61)


def test_without_semitones_recordings_stay_as_they_are(library: NoteDataset) -> None:
    takes = plan_takes(library, range(4), (0, 127), FineTuneConfig(onset_variants=3, semitones=0))
    assert [take.delay for take in takes[:3]] == pytest.approx([0.0, 1 / 3, 2 / 3]) and len(takes) == 12


def test_a_take_is_faster_and_higher(library: NoteDataset) -> None:
    row = int(np.flatnonzero(library.pitch == 65)[0])
    take = Take(row, 2, 0.5)
    audio = take.audio(library, 320)[160:]
    assert len(audio) == pytest.approx(len(library.audio(row)) / 2 ** (2 / 12), abs=2)
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
    hertz = np.argmax(spectrum) * RATE / len(audio)
    assert hertz == pytest.approx(440.0 * 2 ** ((67 - 69) / 12), abs=1.5)
    assert (take.audio(library, 320)[:160] == 0).all()
    assert take.held_frames(library, 320) == pytest.approx(50 / 2 ** (2 / 12), abs=1)
