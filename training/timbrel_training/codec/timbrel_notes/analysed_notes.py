"""A dataset of notes as the parameters that the codec codes, measured once and kept."""

from __future__ import annotations

import functools
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_training.checkpoint import replace_file
from timbrel_training.codec.timbrel_notes.analysis import FundamentalTracker, midi_to_hertz
from timbrel_training.codec.timbrel_notes.measurement import measure_note
from timbrel_training.codec.timbrel_notes.movement import (
    ENOUGH_POINTS,
    Movement,
    measure_movement,
    movement_depth,
    movement_features,
)
from timbrel_training.codec.timbrel_notes.note_parameters import N_MOVING, N_VALUES
from timbrel_training.codec.timbrel_notes.partials import measure_partials
from timbrel_training.codec.timbrel_notes.phase_alignment import measure_coherence
from timbrel_training.codec.timbrel_notes.recorded_note import NoNoteError
from timbrel_training.errors import writing
from timbrel_training.notes.dataset import DatasetError, NoteDataset
from timbrel_training.processes import results
from timbrel_training.progress import bar

ANALYSIS_FOLDER = "analysis"
"""Where a codec's folder keeps the measurements of the notes that it was trained on."""
HELD_OUT_FOLDER = f"{ANALYSIS_FOLDER}/held_out_instruments"
"""Where it keeps those of notes that it only codes."""
HOP_LENGTH = 1280
"""Samples of a frame, at 48 kHz."""
LARGEST_SAMPLE = 1e4
NOTES_PER_FILE = 256
MOVEMENT_EVERY = 8
"""Of one note in so many the movement is kept: it takes much room."""
DATASET_FILE = "dataset"
"""Beside the measurements: the fingerprint of whose they are."""
PART = ".part.npz"
WEIGHT_STEPS = 64
"""Weights are kept in as many steps of 1."""


class NoteAnalysis(NamedTuple):
    """One note, measured: all that the codec has to know of it."""

    values: NDArray[np.float32]
    """[N_VALUES], as `NoteParameters` orders them."""
    weights: NDArray[np.float32]
    """[N_VALUES], how much each can be heard; 0: not at all, or it could not be measured."""
    loudest_db: float
    """What the levels are relative to."""
    track: NDArray[np.float32]
    """[T], the fundamental of each frame, MIDI note numbers."""
    features: NDArray[np.float32]
    """[N_FEATURES] of its movement; NaN where it was too short to say."""
    held_seconds: float
    coherence: float
    """How far its partials have the phases of a pulse, 0 to 1."""


@functools.cache
def _tracker(sample_rate: int) -> FundamentalTracker:
    return FundamentalTracker(sample_rate, HOP_LENGTH)


def analyse_note(
    audio: NDArray[np.float32], sample_rate: int, pitch: float, held_seconds: float
) -> tuple[NoteAnalysis, Movement]:
    """Measures a note, float32 [S] from its onset on, that sounds about at this MIDI note number. Raises
    NoNoteError: there is nothing to measure, or one of these is out of range."""
    if not len(audio) or not np.abs(audio).max() <= LARGEST_SAMPLE:
        raise NoNoteError(f"no sound: samples are needed, all of them finite and at most {LARGEST_SAMPLE:g}")
    if not (0 < pitch <= 127 and held_seconds >= 0):
        raise NoNoteError(f"pitch {pitch:g}, held {held_seconds:g} s: above 0 to 127, from 0 s are allowed")
    with torch.no_grad():
        track = _tracker(sample_rate)(torch.from_numpy(audio)[None], torch.tensor([pitch]))[0]
    centres = (np.arange(len(track)) + 0.5) * HOP_LENGTH
    hertz = np.interp(np.arange(len(audio)), centres, midi_to_hertz(track).double().numpy())
    partials = measure_partials(audio, hertz, sample_rate, held_seconds)
    track = track + 12 * math.log2(partials.stiffness.scale)
    movement = measure_movement(partials, held_seconds)
    measured = measure_note(audio, partials, movement_depth(movement), sample_rate, held_seconds)
    features = movement_features(movement)
    coherence = measure_coherence(audio, hertz * partials.stiffness.scale, sample_rate, held_seconds)
    return NoteAnalysis(*measured, track.numpy(), features, held_seconds, coherence), movement


class AnalysedNotes:
    """The notes of a dataset, measured, as arrays on disk; made by `analyse_dataset`."""

    def __init__(self, files: list[Path]) -> None:
        parts = [_read(file) for file in files]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self.notes: NDArray[np.int64] = whole["notes"]
        """[N], numbers in the dataset."""
        self.values: NDArray[np.float16] = whole["values"]
        """[N, N_VALUES]."""
        self.weights: NDArray[np.uint8] = whole["weights"]
        """[N, N_VALUES], in 64ths."""
        self.moving: NDArray[np.int64] = whole["moving"]
        """[M], numbers in the dataset of the notes whose movement is kept."""
        movements = np.split(whole["movement"], np.cumsum(whole["points"])[:-1])
        self.movements: list[Movement] = movements[: len(self.moving)]  # numpy splits nothing into one
        self._tracks = np.split(whole["track"], np.cumsum(whole["frames"])[:-1])
        self.features: NDArray[np.float32] = whole["features"]
        """[N, N_FEATURES], of the movements; NaN of notes too short to say."""
        self._rest = {name: whole[name] for name in ("loudest_db", "held_seconds", "features", "coherence")}

    def __len__(self) -> int:
        return len(self.notes)

    def __getitem__(self, row: int) -> NoteAnalysis:
        """The analysis of a row, in the order of `notes`."""
        rest = {name: column[row] for name, column in self._rest.items()}
        values = self.values[row].astype(np.float32)
        weights = self.weights[row].astype(np.float32) / WEIGHT_STEPS
        return NoteAnalysis(values=values, weights=weights, track=self._tracks[row], **rest)


def analyse_dataset(
    dataset: NoteDataset, notes: NDArray[np.integer], folder: Path, jobs: int
) -> AnalysedNotes:
    """Measures some notes of a dataset, in `jobs` processes; goes on where a run before was stopped. Raises
    DatasetError: the folder holds the measurements of another dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    of_whom = folder / DATASET_FILE
    if not of_whom.exists():
        replace_file(of_whom, lambda path: path.write_text(dataset.fingerprint))
    elif of_whom.read_bytes() != dataset.fingerprint.encode():
        raise DatasetError(f"{folder}: holds measurements of another dataset of notes; choose another folder")
    pieces = [
        (folder / f"{number:05d}.npz", notes[begin : begin + NOTES_PER_FILE].tolist())
        for number, begin in enumerate(range(0, len(notes), NOTES_PER_FILE))
    ]
    missing = [piece for piece in pieces if not piece[0].exists()]
    done = len(pieces) - len(missing)
    with results(functools.partial(NoteDataset, dataset.path), _analyse_piece, missing, jobs) as work:
        for _ in bar(work, description="analysis", total=len(pieces), unit="file", initial=done):
            pass
    return AnalysedNotes([file for file, _ in pieces])


def kept_analysis(dataset: NoteDataset, folder: Path) -> AnalysedNotes | None:
    """Returns what `analyse_dataset` has kept there of this dataset; None where there is no such thing."""
    of_whom = folder / DATASET_FILE
    if not of_whom.exists() or of_whom.read_bytes() != dataset.fingerprint.encode():
        return None
    files = sorted(each for each in folder.glob("*.npz") if not each.name.endswith(PART))
    return AnalysedNotes(files) if files else None


def _read(file: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(file) as arrays:
            found = dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{file}: damaged ({error}); delete it, and it is measured again") from None
    if found["values"].shape[1] != N_VALUES or "coherence" not in found:
        raise DatasetError(
            f"{file}: measured by another version of timbrel; delete {file.parent}, and it is made anew"
        )
    return found


def _analyse_piece(dataset: NoteDataset, piece: tuple[Path, list[int]]) -> None:
    file, notes = piece
    found: list[NoteAnalysis] = []
    kept: dict[int, Movement] = {}
    for note in notes:
        held, pitch = float(dataset.held_seconds[note]), float(dataset.pitch[note])
        analysis, movement = analyse_note(dataset.audio(note), dataset.sample_rate, pitch, held)
        found.append(analysis)
        if note % MOVEMENT_EVERY == 0 and len(movement) >= ENOUGH_POINTS:
            kept[note] = movement
    arrays: dict[str, Any] = dict(
        notes=np.array(notes, dtype=np.int64),
        values=np.stack([one.values for one in found]).astype(np.float16),
        weights=np.round(np.stack([one.weights for one in found]) * WEIGHT_STEPS).astype(np.uint8),
        loudest_db=np.array([one.loudest_db for one in found], dtype=np.float32),
        held_seconds=np.array([one.held_seconds for one in found], dtype=np.float32),
        features=np.stack([one.features for one in found]).astype(np.float32),
        coherence=np.array([one.coherence for one in found], dtype=np.float32),
        frames=np.array([len(one.track) for one in found], dtype=np.int64),
        track=np.concatenate([one.track for one in found]).astype(np.float32),
        moving=np.array(list(kept), dtype=np.int64),
        points=np.array([len(one) for one in kept.values()], dtype=np.int64),
        movement=np.concatenate([np.zeros((0, N_MOVING, 2), dtype=np.float16), *kept.values()]),
    )
    with writing(file):
        np.savez(file.with_suffix(PART), **arrays)
        os.replace(file.with_suffix(PART), file)
