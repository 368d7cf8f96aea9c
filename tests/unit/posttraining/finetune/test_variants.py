"""How often, at which pitches and from which onset a recording is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from timbrel import progress
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import prepare_recording
from timbrel_export.errors import ExportError
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.samples import (
    MOST_NAMED,
    Variant,
    as_read,
    code_samples,
    long_enough,
    open_samples,
    plan_variants,
    train_on_each,
)
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.timbrel_notes import codec
from timbrel_training.codec.timbrel_notes.analysed_notes import analyse_note
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


def pitches(library: NoteDataset, variants: list[Variant], name: str) -> list[int]:
    """At which pitches an instrument is learnt anew, by repitching."""
    return sorted(
        int(library.pitch[variant.row]) + variant.semitones
        for variant in variants
        if variant.semitones and library.name(variant.row) == name
    )


def test_gaps_between_recordings_are_filled(library: NoteDataset) -> None:
    variants = plan_variants(library, range(4), (0, 127), CONFIG)
    assert sum(not variant.semitones for variant in variants) == 2 * 4
    assert pitches(library, variants, "a") == [58, 59, 59, 62, 62, 63, 63, 64, 66, 67]
    assert pitches(library, variants, "b") == [58, 59, 61, 62]
    assert all(0.0 <= variant.delay < 1.0 for variant in variants)


def test_no_variant_leaves_the_bundles_range(library: NoteDataset) -> None:
    variants = plan_variants(library, range(4), (60, 65), CONFIG)
    assert set(pitches(library, variants, "a")) == {62, 63, 64}


def test_what_is_held_out_is_not_learnt_by_repitching(library: NoteDataset) -> None:
    library.split[library.pitch == 61] = Split.HELD_OUT_CELL
    variants = plan_variants(library, range(4), (0, 127), CONFIG)
    assert 61 not in pitches(library, variants, "a")
    assert all(variant.semitones == 0 for variant in variants if library.pitch[variant.row] == 61)


def test_an_instrument_whose_pitches_are_all_held_out_is_repitched_as_others(library: NoteDataset) -> None:
    """As it is trained on all the same: one sample in ten would be learnt at its own pitch alone."""
    library.split[[1, 3]] = Split.HELD_OUT_CELL  # one of three of a, and the only one of b
    train_on_each(library, np.arange(4))
    assert library.split.tolist() == [Split.TRAIN, Split.HELD_OUT_CELL, Split.TRAIN, Split.TRAIN]
    assert pitches(library, plan_variants(library, range(4), (0, 127), CONFIG), "b") == [58, 59, 61, 62]


def test_without_semitones_recordings_stay_as_they_are(library: NoteDataset) -> None:
    variants = plan_variants(library, range(4), (0, 127), FineTuneConfig(onset_variants=3, semitones=0))
    assert [variant.delay for variant in variants[:3]] == pytest.approx([0.0, 1 / 3, 2 / 3]) and len(
        variants
    ) == 12


def test_one_variant_begins_at_once_at_every_pitch(library: NoteDataset) -> None:
    variants = plan_variants(library, range(4), (0, 127), FineTuneConfig())
    assert len(variants) == 4 + 14 and {variant.delay for variant in variants} == {0.0}


def test_variants_that_get_too_short_are_named_and_left_out(library: NoteDataset, tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    samples = np.arange(RATE // 2)
    decay = 0.5 * np.sin(samples / 4) * 10 ** (-3 * samples / (0.062 * RATE))
    soundfile.write(tmp_path / "short" / "c_070.wav", decay, RATE)
    render_dataset(
        FolderSource(tmp_path / "short", sample_rate=RATE), tmp_path / "notes", 1, rule=SplitRule(0.0)
    )
    short, told = NoteDataset(tmp_path / "notes"), list[str]()
    variants = plan_variants(short, [0], (0, 127), FineTuneConfig(semitones=2))
    kept = long_enough(short, variants, 320, told.append)
    assert [variant.semitones for variant in kept] == [0, -2, -1, 1]
    assert told == [
        "left out: c, note 70 repitched to 72: the audio holds 0.048 s of sound; 0.05 s at least are needed"
    ]
    for variant in variants:  # as the timbre encoder judges
        audio = variant.audio(short, 320)
        if variant in kept:
            prepare_recording(audio, RATE, pb.CodecSpec(sample_rate=RATE), 6.0)
        else:
            with pytest.raises(AudioError, match="at least are needed"):
                prepare_recording(audio, RATE, pb.CodecSpec(sample_rate=RATE), 6.0)
    assert long_enough(library, plan_variants(library, range(4), (0, 127), CONFIG), 320, told.append)
    assert len(told) == 1
    with pytest.raises(ExportError, match=r"no sample holds 0\.05 s of sound"):
        long_enough(short, [Variant(0, 12, 0.0)], 320, told.append)


def test_a_variant_is_faster_and_higher(library: NoteDataset) -> None:
    row = int(np.flatnonzero(library.pitch == 65)[0])
    variant = Variant(row, 2, 0.5)
    audio = variant.audio(library, 320)[160:]
    assert len(audio) == pytest.approx(len(library.audio(row)) / 2 ** (2 / 12), abs=2)
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
    hertz = np.argmax(spectrum) * RATE / len(audio)
    assert hertz == pytest.approx(440.0 * 2 ** ((67 - 69) / 12), abs=1.5)
    assert (variant.audio(library, 320)[:160] == 0).all()
    held = variant.held_seconds(library, 320) * RATE / 320
    assert held == pytest.approx(50 / 2 ** (2 / 12) + 0.5, abs=1)


def test_samples_are_counted_off_as_each_is_measured(
    library: NoteDataset, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of an instrument's are coded together, and its bar would stand still for minutes."""
    said: list[str] = []
    update = progress.Lines.update

    def measure(*note: Any) -> Any:
        said.append("measured")
        return analyse_note(*note)

    def tell(bar: progress.Lines, n: int = 1) -> None:
        said.append(f"{bar._description} {n}")
        update(bar, n)

    monkeypatch.setattr(codec, "analyse_note", measure)
    monkeypatch.setattr(progress.Lines, "update", tell)
    config = FineTuneConfig(semitones=0, search_steps=0, cell_fraction=0.0)
    base = Base.open(tiny_bundle)
    source = open_samples(f"folder:{tmp_path / 'takes'}", "unknown", base)
    coded = code_samples(source, base, config, tmp_path, lambda _: None)
    assert coded.table.n_notes == 4 and said[-8:] == ["measured", "coding 1"] * 4


def test_how_names_are_read_is_said_by_instrument(tmp_path: Path) -> None:
    for name in ("Glass_C4_p", "Glass_E4_f", "Bolt_C3_soft", "Bolt_C3_hard"):
        soundfile.write(tmp_path / f"{name}.wav", np.ones(16), RATE)
    assert sorted(as_read(FolderSource(tmp_path))) == [
        "Bolt: 2 samples, notes 48 to 48, velocities 100 to 100",
        "Glass: 2 samples, notes 60 to 64, velocities 49 to 96",
    ]
    for number in range(MOST_NAMED):
        soundfile.write(tmp_path / f"wood{chr(97 + number)}_C4.wav", np.ones(16), RATE)
    assert list(as_read(FolderSource(tmp_path)))[MOST_NAMED:] == ["and 2 instruments more"]
