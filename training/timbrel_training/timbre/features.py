"""The features of stage 1: what the timbre encoder hears of many notes, computed once and kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from timbrel_training.errors import CheckpointError, writing
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.progress import bar
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.foreign import foreign_sound
from timbrel_training.timbre.recordings import as_recorded

Levels = NDArray[np.float16]
"""[T, n_bands] in dB, of a note's first frames; T is 0 where there is nothing to hear."""
DB = float(np.log2(10.0) / 10.0)
"""Octaves of power in a decibel."""
FILE_VERSION = 1
"""Raise it when levels are computed in another way."""
BATCH = 16
"""Notes whose levels are computed at once."""
EMBED_BATCH = 512
"""Notes that a trained encoder hears at once."""
RECORDED, FOREIGN = 1, 2
"""What a generator is seeded with beside a number: as recordings and foreign sounds are drawn."""
COLOUR_POINTS = 7
"""Bands at which a microphone's colour is drawn; between them it is smooth."""
COLOUR_DB = 4.0
NOISE_DB = (20.0, 50.0)
"""How far noise lies below a note's loudest band."""

SHORTEST_CROP = 15
"""Frames: recordings shown to `locate` may be this short, so training sees such crops too."""
LATE_SHARE, BEHIND_NOISE_SHARE, SOFT_SHARE = 0.45, 0.3, 0.6
"""Shares of notes of which the first frames are missed, that come behind a noise, that rise softly."""
MOST_MISSED, MOST_BEFORE, LONGEST_RISE = 40, 6, 9
"""Frames."""
RISE_DB, ROOM_NOISE_DB = (6.0, 40.0), (25.0, 60.0)
"""How far below itself a note begins that rises, and how far below it noise lies that comes before."""


@dataclass(frozen=True, eq=False)
class NoteFeatures:
    """The levels of the starts of N notes."""

    levels: NDArray[np.float16]  # [N, F, n_bands], in dB; 0 behind a note's frames
    n_frames: NDArray[np.int64]  # [N], 0..F

    def of(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns levels float32 [B, F, n_bands] and frames int64 [B] of some notes."""
        levels, n_frames = torch.from_numpy(self.levels[rows]), torch.from_numpy(self.n_frames[rows])
        return levels.to(device).float(), n_frames.to(device)


@torch.no_grad()
def levels_of(encoder: TimbreEncoder, notes: list[NDArray[np.float32]]) -> list[Levels]:
    """Returns the levels of notes given as audio [S] each, S at least 1, at the encoder's sample rate."""
    log_mel = encoder.log_mel
    longest = min(max(map(len, notes)), log_mel.n_frames * log_mel.hop_length)
    audio = np.zeros((len(notes), longest), np.float32)
    for row, note in zip(audio, notes, strict=True):
        row[: len(note)] = note[:longest]
    device = log_mel.window.device
    n_samples = torch.tensor([min(len(note), longest) for note in notes], device=device)
    levels = log_mel(torch.from_numpy(audio).to(device), n_samples).half().cpu().numpy()
    return [row[:n] for row, n in zip(levels, log_mel.count(n_samples).tolist(), strict=True)]


def features_key(encoder: TimbreEncoder, notes: NoteDataset, rows: NDArray[np.int64] | None = None) -> str:
    """Names what an encoder hears of a library, or of these rows of it, by 16 hexadecimal digits."""
    config = encoder.config
    levels = (config.frame_rate, config.n_frames, config.n_bands, config.lowest_hertz, config.highest_hertz)
    digest = hashlib.sha256(json.dumps([FILE_VERSION, levels, notes.header], sort_keys=True).encode())
    digest.update(notes.index.tobytes())
    if rows is not None:
        digest.update(rows.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def library_features(folder: Path, encoder: TimbreEncoder, notes: NoteDataset) -> NoteFeatures:
    """Returns the levels of a library's notes, kept in `folder`; see `kept_features`."""
    longest = encoder.log_mel.n_frames * encoder.log_mel.hop_length
    path = folder / f"features-{features_key(encoder, notes)}.f16"
    return _features(path, encoder, "features", len(notes), lambda row: notes.audio(row, 0, longest))


def recorded_features(
    folder: Path, encoder: TimbreEncoder, notes: NoteDataset, rows: NDArray[np.int64]
) -> NoteFeatures:
    """Returns the levels of these notes as recordings have them (`as_recorded`), kept in `folder`."""
    longest = encoder.log_mel.n_frames * encoder.log_mel.hop_length

    def record(place: int) -> NDArray[np.float32]:
        row = int(rows[place])
        audio = notes.audio(row, 0, longest)
        return as_recorded(audio, notes.sample_rate, np.random.default_rng([RECORDED, row]))

    path = folder / f"recorded-{features_key(encoder, notes, rows)}.f16"
    return _features(path, encoder, "recorded", len(rows), record)


def foreign_features(
    folder: Path, encoder: TimbreEncoder, notes: NoteDataset, rows: NDArray[np.int64], count: int
) -> NoteFeatures:
    """Returns the levels of so many foreign sounds, which these notes are mixed into, kept in `folder`."""
    seconds = encoder.log_mel.n_frames * encoder.log_mel.hop_length / notes.sample_rate

    def make(number: int) -> NDArray[np.float32]:
        return foreign_sound(notes, rows, seconds, np.random.default_rng([FOREIGN, number]))

    path = folder / f"foreign-{features_key(encoder, notes, rows)}-{count}.f16"
    return _features(path, encoder, "foreign sounds", count, make)


@torch.no_grad()
def embed(
    encoder: TimbreEncoder, features: NoteFeatures, rows: NDArray[np.int64], device: torch.device
) -> NDArray[np.float32]:
    """Returns the embeddings, float32 [n, D], of some notes."""
    batches = np.split(rows, range(EMBED_BATCH, len(rows), EMBED_BATCH))
    return torch.cat([encoder.hear(*features.of(of, device)).cpu() for of in batches]).numpy()


@torch.no_grad()
def locate(
    encoder: TimbreEncoder, features: NoteFeatures, rows: NDArray[np.int64], device: torch.device
) -> NDArray[np.float32]:
    """Returns where the encoder puts some notes, float32 [n, 2]."""
    found = [torch.zeros(0, 2)]
    for first in range(0, len(rows), EMBED_BATCH):
        found.append(encoder.place(*features.of(rows[first : first + EMBED_BATCH], device)).cpu())
    return torch.cat(found).numpy().astype(np.float32)


def disturbed(
    levels: NDArray[np.float32], n_frames: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Puts a microphone's colour and a noise on levels [B, F, n_bands], for each note another."""
    n_notes, _, n_bands = levels.shape
    loudest = _loudest(levels, n_frames)
    points = rng.normal(0.0, COLOUR_DB, (2, n_notes, COLOUR_POINTS))
    at = np.linspace(0.0, COLOUR_POINTS - 1.0, n_bands)
    low = np.minimum(at.astype(int), COLOUR_POINTS - 2)
    colour, floor = points[..., low] + (at - low) * (points[..., low + 1] - points[..., low])
    noise = floor + loudest[:, None] - rng.uniform(*NOISE_DB, (n_notes, 1))
    swing = 2.0 * rng.standard_normal(levels.shape, np.float32)
    heard = levels + colour[:, None].astype(np.float32)
    return np.asarray(np.logaddexp2(heard * DB, (noise[:, None] + swing).astype(np.float32) * DB) / DB)


def begun_otherwise(
    levels: NDArray[np.float32], n_frames: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Has notes of levels [B, F, n_bands] begin late, behind the noise of a room, or softly.

    The same instrument begins otherwise in every collection of samples, and an encoder that knows one by its
    first frames knows no other. Returns the levels, and the frames [B] that the notes have then.
    """
    n_notes, length, _ = levels.shape
    late, behind, soft = (
        rng.random(n_notes) < share for share in (LATE_SHARE, BEHIND_NOISE_SHARE, SOFT_SHARE)
    )
    missed = np.where(late, rng.integers(0, MOST_MISSED + 1, n_notes), 0)
    missed = np.minimum(missed, np.maximum(n_frames - SHORTEST_CROP, 0))
    before = np.where(behind, rng.integers(1, MOST_BEFORE + 1, n_notes), 0)
    place = np.arange(length) - before[:, None]  # frame of the note that is heard; negative before it
    at = np.clip(place + missed[:, None], 0, length - 1)
    heard = np.take_along_axis(levels, at[:, :, None], axis=1)
    rise = np.where(soft, rng.integers(1, LONGEST_RISE + 1, n_notes), 0)[:, None]
    lower = rng.uniform(*RISE_DB, (n_notes, 1)) * np.maximum(1.0 - (place + 0.5) / np.maximum(rise, 1), 0.0)
    heard = heard - np.where(rise > 0, lower, 0.0)[:, :, None].astype(np.float32)
    noise = (
        _loudest(levels, n_frames)[:, None, None]
        - rng.uniform(*ROOM_NOISE_DB, (n_notes, 1, 1))
        + 3.0 * rng.standard_normal(levels.shape)
    )
    heard = np.where(place[:, :, None] < 0, noise, heard).astype(np.float32)
    return heard, np.minimum(n_frames - missed + before, length)


def _loudest(levels: NDArray[np.float32], n_frames: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the loudest level of each note, [B]; what lies behind its `n_frames` [B] does not count."""
    inside = (np.arange(levels.shape[1]) < n_frames[:, None])[:, :, None]
    return np.asarray(levels.max(axis=(1, 2), where=inside, initial=-np.inf))


def _features(
    path: Path, encoder: TimbreEncoder, name: str, count: int, sound: Callable[[int], NDArray[np.float32]]
) -> NoteFeatures:
    """Returns the levels of `sound(0)`, `sound(1)`, .. `sound(count - 1)`; see `kept_features`."""

    def compute(done: int) -> Iterator[Levels]:
        with bar(description=name, total=count, unit="note", initial=done) as shown:
            for first in range(done, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                yield from levels_of(encoder, [sound(number) for number in numbers])
                shown.update(len(numbers))

    return kept_features(path, encoder, count, compute)


def kept_features(
    path: Path, encoder: TimbreEncoder, n_notes: int, compute: Callable[[int], Iterable[Levels]]
) -> NoteFeatures:
    """Reads the levels of notes from their file, which is made first where there is none.

    `compute` gives the levels of all notes from a number on, in order; what was made before a run was killed
    is kept beside the file, and gone on from. Raises CheckpointError: the file is of other notes; WriteError:
    the disk is full.
    """
    config = encoder.config
    record = np.dtype([("n_frames", "<i4"), ("levels", "<f2", (config.n_frames, config.n_bands))])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("ab", buffering=0) as file:
            done = file.tell() // record.itemsize
            file.truncate(done * record.itemsize)
            for levels in compute(done):
                one = np.zeros((), record)
                one["n_frames"], one["levels"][: len(levels)] = len(levels), levels
                data = one.tobytes()
                with writing(path):
                    while data:  # the last of a disk may take less at once
                        data = data[file.write(data) :]
        os.replace(partial, path)
    if path.stat().st_size != n_notes * record.itemsize:
        raise CheckpointError(f"{path}: not the features of these {n_notes} notes; delete it")
    # numpy maps no empty file, which that of no notes is.
    kept = np.memmap(path, record, mode="r", shape=(n_notes,)) if n_notes else np.zeros(0, record)
    return NoteFeatures(kept["levels"], kept["n_frames"].astype(np.int64))
