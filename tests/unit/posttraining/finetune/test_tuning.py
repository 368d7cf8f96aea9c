"""Samples that are not in tune with their names: heard, named, mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel.library.render.yin import Yin
from timbrel.pitch import frequency
from timbrel_posttraining.finetune.tuning import check_tuning
from timbrel_training.notes.folder import FolderSource

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
