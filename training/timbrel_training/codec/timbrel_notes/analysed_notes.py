"""A dataset of notes as the parameters that the codec codes, measured once and kept."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_training.codec.timbrel_notes.analysis import Analysis, midi_to_hertz
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.measurement import measure_note
from timbrel_training.codec.timbrel_notes.movement import N_MOVING, N_POINTS, Movement, measure_movement
from timbrel_training.codec.timbrel_notes.partials import Partials, measure_partials
from timbrel_training.notes.dataset import NoteDataset

NOTES_PER_FILE = 256
MOVEMENT_EVERY = 4
"""Of one note in so many the movement is kept: it takes much room."""
WEIGHT_STEPS = 64
"""Weights are kept in as many steps of 1."""


class NoteAnalysis(NamedTuple):
    """One note, measured."""

    values: NDArray[np.float32]
    weights: NDArray[np.float32]
    loudest_db: float
    midi: NDArray[np.float32]
    """[T], the fundamental of each frame, MIDI note numbers."""
    partials: Partials


_analysis = Analysis(TimbrelNotesConfig())


def analyse_note(
    audio: NDArray[np.float32], sample_rate: int, pitch: float, held_seconds: float
) -> NoteAnalysis:
    """Measures a note, float32 [S] from its onset on, that sounds about at this MIDI note number."""
    with torch.no_grad():
        spectrum = _analysis.long_spectrum(torch.from_numpy(audio)[None])
        midi = _analysis.tracker(spectrum, torch.tensor([pitch]))[0]
    hop = _analysis.config.hop_length
    centres = (np.arange(len(midi)) + 0.5) * hop
    hertz = np.interp(np.arange(len(audio)), centres, midi_to_hertz(midi).double().numpy())
    partials = measure_partials(audio, hertz, sample_rate, held_seconds)
    values, weights, loudest = vars(measure_note(audio, partials, sample_rate, held_seconds)).values()
    return NoteAnalysis(values, weights, loudest, midi.numpy(), partials)


@dataclass(frozen=True)
class AnalysedNotes:
    """Notes of a dataset as parameters; N notes, M of them with their movement."""

    notes: NDArray[np.int64]
    """[N], their numbers in the dataset."""
    values: NDArray[np.float16]
    """[N, N_VALUES]."""
    weights: NDArray[np.uint8]
    """[N, N_VALUES], in 64ths."""
    midi: NDArray[np.float32]
    """[N], the mean fundamental."""
    moving: NDArray[np.int64]
    """[M], numbers in the dataset of the notes with a movement."""
    movement: list[Movement]


def analyse_dataset(dataset: NoteDataset, notes: NDArray[np.integer], folder: Path, jobs: int) -> AnalysedNotes:
    """Measures some notes of a dataset, in `jobs` processes; goes on where a run before was stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [
        (str(dataset.path), str(folder / f"{number:05d}.npz"), notes[begin : begin + NOTES_PER_FILE].tolist())
        for number, begin in enumerate(range(0, len(notes), NOTES_PER_FILE))
    ]
    missing = [piece for piece in pieces if not os.path.exists(piece[1])]
    done = len(pieces) - len(missing)
    context = multiprocessing.get_context("spawn")
    with context.Pool(max(1, jobs)) as pool:
        for _ in tqdm(
            pool.imap_unordered(_analyse_piece, missing), "analysis", len(pieces), initial=done, dynamic_ncols=True
        ):
            pass
    return _read([piece[1] for piece in pieces])


def _analyse_piece(piece: tuple[str, str, list[int]]) -> None:
    path, file, notes = piece
    torch.set_num_threads(1)
    dataset = NoteDataset(path)
    values, weights, midi, moving, movement, lengths = [], [], [], [], [], []
    for note in notes:
        held = float(dataset.held_seconds[note])
        found = analyse_note(dataset.audio(note), dataset.sample_rate, float(dataset.pitch[note]), held)
        values.append(found.values.astype(np.float16))
        weights.append(np.round(np.clip(found.weights, 0, 3.5) * WEIGHT_STEPS).astype(np.uint8))
        midi.append(found.midi.mean())
        if note % MOVEMENT_EVERY == 0 and len(one := measure_movement(found.partials, held)):
            moving.append(note)
            lengths.append(len(one))
            movement.append(one)
    temporary = f"{file}.part.npz"
    np.savez(
        temporary,
        notes=notes,
        values=np.stack(values),
        weights=np.stack(weights),
        midi=np.array(midi, dtype=np.float32),
        moving=np.array(moving, dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        movement=np.concatenate(movement) if movement else np.zeros((0, N_MOVING, 2), dtype=np.int8),
    )
    os.replace(temporary, file)


def _read(files: list[str]) -> AnalysedNotes:
    parts = [dict(np.load(file)) for file in files]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ends = np.cumsum(whole.pop("lengths"))
    movement = np.split(whole.pop("movement"), ends[:-1])
    return AnalysedNotes(**whole, movement=movement)
