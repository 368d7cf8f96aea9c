"""Synthetic notes: tokenised ones without audio, and a library of the tiny bundle's names, tokenised too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simple_notes import SyntheticSource

from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.table import TokenTable

N_CODEBOOKS = 3
CODEBOOK_SIZE = 16
INSTRUMENTS = ("Grand Piano", "Violin", "Flute", "Trumpet")
"""On the tiny bundle's map."""


def from_notes(
    notes: Sequence[NDArray[np.uint16]],
    *,
    instrument: Sequence[int],
    pitch: Sequence[int],
    velocity: Sequence[int],
    held_frames: Sequence[int],
    split: Sequence[int],
    instruments: Sequence[tuple[str, str]],
    codebook_size: int,
    frame_rate: float,
    cut: Sequence[bool] | None = None,
) -> TokenTable:
    """Makes a table of notes given as codes [T, K] each; `instruments` are (name, family) pairs."""
    lengths = [len(note) for note in notes]
    return TokenTable(
        codes=np.concatenate(notes),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        instrument=np.asarray(instrument, dtype=np.int64),
        source=np.zeros(len(notes), dtype=np.int64),
        pitch=np.asarray(pitch, dtype=np.int64),
        velocity=np.asarray(velocity, dtype=np.int64),
        held_frames=np.asarray(held_frames, dtype=np.int64),
        cut=np.zeros(len(notes), bool) if cut is None else np.asarray(cut, dtype=bool),
        split=np.asarray(split, dtype=np.int64),
        instruments=tuple(name for name, _ in instruments),
        families=tuple(family for _, family in instruments),
        header=TokenHeader("test", "", round(960 * frame_rate), 960, notes[0].shape[1], codebook_size),
    )


def with_header(table: TokenTable, **facts: Any) -> TokenTable:
    """The same notes by a codec of which other facts are told."""
    return dataclasses.replace(table, header=dataclasses.replace(table.header, **facts))


def make_table(n_instruments: int = 4, per_instrument: int = 40, seed: int = 0) -> TokenTable:
    """Notes whose first codebook tells the instrument and whose second tells the pitch."""
    generator = np.random.default_rng(seed)
    notes, pitches, velocities, held, splits, owners = [], [], [], [], [], []
    for instrument in range(n_instruments):
        for number in range(per_instrument):
            pitch = 60 + number % 10
            length = int(generator.integers(8, 40))
            codes = generator.integers(0, CODEBOOK_SIZE, (length, N_CODEBOOKS))
            codes[:, 0] = instrument * 3 + generator.integers(0, 2, length)
            codes[:, 1] = pitch - 60
            notes.append(codes.astype(np.uint16))
            pitches.append(pitch)
            velocities.append(int(generator.integers(1, 128)))
            held.append(max(1, length - 5))
            splits.append(int(Split.HELD_OUT_CELL if pitch == 60 + instrument else Split.TRAIN))
            owners.append(instrument)
    return from_notes(
        notes,
        instrument=owners,
        pitch=pitches,
        velocity=velocities,
        held_frames=held,
        split=splits,
        instruments=[(f"Instrument {index}", f"Family {index % 2}") for index in range(n_instruments)],
        codebook_size=CODEBOOK_SIZE,
        frame_rate=50.0,
        cut=[number % 7 == 0 for number in range(n_instruments * per_instrument)],
    )


@pytest.fixture
def table() -> TokenTable:
    """160 notes of four instruments."""
    return make_table()


class NamedSource(SyntheticSource):
    """Synthetic notes under the names that the tiny bundle's map has."""

    def groups(self) -> Sequence[str]:
        return INSTRUMENTS


@pytest.fixture(scope="session")
def library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of 4 instruments at 8 pitches, 6 notes a cell, some cells held out."""
    path = tmp_path_factory.mktemp("library") / "notes"
    source = NamedSource(pitches=range(57, 65), n_draws=6, sample_rate=48_000, max_held=1.0)
    render_dataset(source, path, jobs=1, rule=SplitRule(cell_fraction=0.25))
    return path


@pytest.fixture
def library_table(library_dir: Path) -> TokenTable:
    """What tokens say of the library's notes; their codes are made up."""
    return table_of(NoteDataset(library_dir))


def table_of(notes: NoteDataset) -> TokenTable:
    """What tokens would say of notes; their codes are made up."""
    generator = np.random.default_rng(0)
    return from_notes(
        [
            generator.integers(0, CODEBOOK_SIZE, (-(-n_samples // 960), N_CODEBOOKS)).astype(np.uint16)
            for n_samples in notes.length.tolist()
        ],
        instrument=notes.instrument.tolist(),
        pitch=notes.pitch.tolist(),
        velocity=notes.velocity.tolist(),
        held_frames=np.ceil(50.0 * notes.held_seconds).tolist(),
        split=notes.split.tolist(),
        instruments=list(zip(notes.instruments, notes.instrument_families, strict=True)),
        codebook_size=CODEBOOK_SIZE,
        frame_rate=50.0,
    )
