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
from tqdm import tqdm

from timbrel_training.errors import CheckpointError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.timbre.encoder import TimbreEncoder

Levels = NDArray[np.float16]
"""[T, n_bands] in dB, of a note's first frames; T is 0 where there is nothing to hear."""
FILE_VERSION = 1
"""Raise it when levels are computed in another way."""
BATCH = 16
"""Notes whose levels are computed at once."""


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


def features_key(encoder: TimbreEncoder, notes: NoteDataset) -> str:
    """Names what an encoder hears of a library by 16 hexadecimal digits; other notes have another name."""
    config = encoder.config
    levels = (config.frame_rate, config.n_frames, config.n_bands, config.lowest_hertz, config.highest_hertz)
    digest = hashlib.sha256(json.dumps([FILE_VERSION, levels, notes.header], sort_keys=True).encode())
    digest.update(notes.index.tobytes())
    return digest.hexdigest()[:16]


def library_features(folder: Path, encoder: TimbreEncoder, notes: NoteDataset) -> NoteFeatures:
    """Returns the levels of a library's notes, kept in `folder`; see `kept_features`."""
    longest = encoder.log_mel.n_frames * encoder.log_mel.hop_length

    def compute(done: int) -> Iterator[Levels]:
        with tqdm(desc="features", total=len(notes), initial=done, dynamic_ncols=True) as shown:
            for first in range(done, len(notes), BATCH):
                rows = range(first, min(first + BATCH, len(notes)))
                yield from levels_of(encoder, [notes.audio(row, 0, longest) for row in rows])
                shown.update(len(rows))

    return kept_features(
        folder / f"features-{features_key(encoder, notes)}.f16", encoder, len(notes), compute
    )


def kept_features(
    path: Path, encoder: TimbreEncoder, n_notes: int, compute: Callable[[int], Iterable[Levels]]
) -> NoteFeatures:
    """Reads the levels of notes from their file, which is made first where there is none.

    Args:
        path: the file; what was made of it before a run was killed is kept beside it, and gone on from.
        encoder: whose levels they are.
        n_notes: how many.
        compute: gives the levels of all notes from this one on, in order.

    Raises:
        CheckpointError: the file is of other notes.
    """
    config = encoder.config
    record = np.dtype([("n_frames", "<i4"), ("levels", "<f2", (config.n_frames, config.n_bands))])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("ab") as file:
            done = file.tell() // record.itemsize
            file.truncate(done * record.itemsize)
            for levels in compute(done):
                one = np.zeros((), record)
                one["n_frames"], one["levels"][: len(levels)] = len(levels), levels
                file.write(one.tobytes())
        os.replace(partial, path)
    if path.stat().st_size != n_notes * record.itemsize:
        raise CheckpointError(f"{path}: not the features of these {n_notes} notes; delete it")
    kept = np.memmap(path, record, mode="r", shape=(n_notes,))
    return NoteFeatures(kept["levels"], kept["n_frames"].astype(np.int64))
