"""What a codec keeps of notes that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_posttraining.codec_comparison.segments import resample
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.spectrum import log_mel, log_mel_distance
from timbrel_training.notes.split import Split

LOWEST, HIGHEST = 36, 94
"""Pitches judged: what swift-f0 can hear."""


@dataclass(frozen=True)
class Reconstruction:
    """Figures over the same notes for every design."""

    n_notes: int
    median_db: float
    """Of the notes' log-mel distances to their sources."""
    mean_db: float
    """Likewise."""
    source_in_tune: float
    """Share of the source notes within 50 cents of their pitch, by swift-f0."""
    codec_in_tune: float
    """The same share after the codec."""
    source_in_tune_by_either: float
    """Share of the source notes within 50 cents of their pitch, by swift-f0 or YIN."""
    codec_in_tune_by_either: float
    """The same share after the codec."""


def judged_notes(library: NoteDataset, n_notes: int) -> NDArray[np.intp]:
    """Some held-out notes, always the same ones, within the pitch tracker's range.

    Raises:
        TrainingError: there are none.
    """
    audible = (library.pitch >= LOWEST) & (library.pitch <= HIGHEST)
    rows = np.flatnonzero(audible & (library.split == int(Split.HELD_OUT_CELL)))
    if not len(rows):
        raise TrainingError(f"{library.path}: no held-out notes of pitch {LOWEST} to {HIGHEST}; render more")
    return np.sort(np.random.default_rng(0).permutation(rows)[:n_notes])


@torch.no_grad()
def judge_reconstruction(library: NoteDataset, rows: NDArray[np.intp], codec: Codec) -> Reconstruction:
    """Codes and decodes notes `rows` of the library.

    Raises:
        MissingExtraError: swift-f0 is not installed.
    """
    meter = TuningMeter()
    distances, before, after = [], [], []
    for row in tqdm(rows, "reconstruction", dynamic_ncols=True):
        source, pitch = library.audio(int(row)), int(library.pitch[row])
        kept = reconstruct(codec, resample(source, library.sample_rate, codec.sample_rate), pitch)
        of_source, of_kept = log_mel(source, library.sample_rate), log_mel(kept, codec.sample_rate)
        distances.append(log_mel_distance(of_source, of_kept))
        before.append(meter.measure(source, library.sample_rate, pitch))
        after.append(meter.measure(kept, codec.sample_rate, pitch))
    return Reconstruction(
        n_notes=len(rows),
        median_db=float(np.median(distances)),
        mean_db=float(np.mean(distances)),
        source_in_tune=float(np.mean([tuning.swift_in_tune for tuning in before])),
        codec_in_tune=float(np.mean([tuning.swift_in_tune for tuning in after])),
        source_in_tune_by_either=float(np.mean([tuning.in_tune for tuning in before])),
        codec_in_tune_by_either=float(np.mean([tuning.in_tune for tuning in after])),
    )


def reconstruct(codec: Codec, audio: NDArray[np.float32], pitch: float) -> NDArray[np.float32]:
    """A note [samples] at the codec's rate, coded and decoded: as long as it was."""
    codes = encode_note(codec, torch.from_numpy(audio), pitch)
    decoded: NDArray[np.float32] = codec.decode(codes[None])[0, : len(audio)].numpy()
    return decoded
