"""The figures of a codec: its use of codes, what it keeps of notes, how hard its codes are to predict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_posttraining.codec_comparison.codec_training import Spent, Trainee, resample, train_for
from timbrel_posttraining.codec_comparison.designs import ComparisonConfig
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.errors import TrainingError
from timbrel_training.loop import LoopConfig
from timbrel_training.model.config import ModelConfig
from timbrel_training.note_training.batches import TimbreConditions
from timbrel_training.note_training.train import NoteBatch, NoteTrainer, NoteTrainingConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.spectrum import log_mel, log_mel_distance
from timbrel_training.notes.split import Split
from timbrel_training.tokens.table import TokenTable, from_notes

LOWEST, HIGHEST = 36, 94
"""Pitches judged: those that swift-f0 can hear."""
GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


@dataclass(frozen=True)
class CodeUsage:
    """Figures of each codebook, in their order."""

    distinct: tuple[int, ...]
    """Codes that occur at all."""
    perplexity: tuple[float, ...]
    """Exponential of the entropy: as many codes, used evenly, would be as hard to guess."""
    change: tuple[float, ...]
    """Share of frames whose code is not the frame's before; on a steady tone it should be 0."""

    @classmethod
    def of(cls, table: TokenTable) -> CodeUsage:
        """Counts over all frames of all notes."""
        counts = [
            np.bincount(table.codes[:, q], minlength=table.codebook_size) for q in range(table.n_codebooks)
        ]
        within = np.ones(len(table.codes), bool)
        within[table.offsets[:-1]] = False  # a note's first frame follows nothing
        changed = table.codes[1:] != table.codes[:-1]
        return cls(
            distinct=tuple(int((count > 0).sum()) for count in counts),
            perplexity=tuple(_perplexity(count) for count in counts),
            change=tuple(float(share) for share in changed[within[1:]].mean(axis=0)),
        )


@dataclass(frozen=True)
class Reconstruction:
    """Figures over the same notes for every design."""

    n_notes: int
    median_db: float
    """The median of the notes' log-mel distances to their sources."""
    mean_db: float
    """Their mean."""
    source_in_tune: float
    """Share of the source notes within 50 cents of their pitch, by swift-f0."""
    codec_in_tune: float
    """The same share after the codec."""
    source_in_tune_by_either: float
    """Share of the source notes within 50 cents of their pitch, by swift-f0 or YIN."""
    codec_in_tune_by_either: float
    """The same share after the codec."""


def judged_notes(library: NoteDataset, n_notes: int) -> NDArray[np.intp]:
    """Picks some held-out notes, always the same ones, within the pitch tracker's range.

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
    """Codes and decodes a note [samples] at the codec's rate: it stays as long as it was."""
    codes = encode_note(codec, torch.from_numpy(audio), pitch)
    decoded: NDArray[np.float32] = codec.decode(codes[None])[0, : len(audio)].numpy()
    return decoded


@dataclass(frozen=True)
class Predictability:
    """Cross entropy of held-out notes under the note transformer."""

    nats_per_second: float
    """The bits per second of audio, all codebooks together."""
    nats_by_codebook: tuple[float, ...]
    """Nats per token, codebook by codebook."""
    parameters: int
    """Parameters of the note transformer."""
    spent: Spent
    """The training that it had."""

    @property
    def bits_per_second(self) -> float:
        """The bits per second of audio, all codebooks together."""
        return self.nats_per_second / math.log(2.0)


def chosen_notes(library: NoteDataset, config: ComparisonConfig) -> NDArray[np.intp]:
    """Picks training notes and held-out notes for the note transformer, always the same ones.

    Raises:
        TrainingError: there are none of either.
    """
    chosen = []
    for split, n_notes in (
        (Split.TRAIN, config.n_training_notes),
        (Split.HELD_OUT_CELL, config.n_held_out_notes),
    ):
        rows = library.of_split(split)
        if not len(rows):
            raise TrainingError(f"{library.path}: no notes of split {split.name.lower()}; render more")
        chosen.append(np.random.default_rng(1).permutation(rows)[:n_notes])
    return np.sort(np.concatenate(chosen))


@torch.no_grad()
def code_notes(library: NoteDataset, rows: NDArray[np.intp], codec: Codec, note_seconds: float) -> TokenTable:
    """Codes notes `rows`, cut after `note_seconds`."""
    n_samples = round(note_seconds * library.sample_rate)
    max_frames = math.floor(note_seconds * codec.frame_rate) + codec.lead_frames
    notes = []
    for row in tqdm(rows, "codes", dynamic_ncols=True):
        audio = resample(library.audio(int(row), 0, n_samples), library.sample_rate, codec.sample_rate)
        codes = encode_note(codec, torch.from_numpy(audio), float(library.pitch[row]))
        notes.append(codes[:max_frames].numpy().astype(np.uint16))
    held = [codec.held_frames(seconds) for seconds in library.held_seconds[rows].tolist()]
    return from_notes(
        notes,
        instrument=library.instrument[rows].tolist(),
        pitch=library.pitch[rows].tolist(),
        velocity=library.velocity[rows].tolist(),
        held_frames=held,
        split=library.split[rows].tolist(),
        instruments=list(zip(library.instruments, library.instrument_families, strict=True)),
        codebook_size=codec.codebook_size,
        frame_rate=codec.frame_rate,
        cut=(library.cut[rows] | (library.length[rows] > n_samples)).tolist(),
    )


def measure_predictability(
    table: TokenTable, config: ComparisonConfig, folder: Path, name: str
) -> Predictability:
    """Trains the note transformer on the table's training notes, and scores its held-out ones.

    Raises:
        StoppedError: a signal ended it early.
    """
    trainer: list[NoteTrainer] = []

    def make() -> Trainee[NoteBatch]:
        trainer[:] = [note_trainer(table, config)]
        return Trainee(trainer[0].model, trainer[0].loss, trainer[0].batch)

    average, spent = train_for(config.decoder_minutes, make, loop_config(config), folder, name)
    with torch.no_grad():
        figures = trainer[0].validate(average)
    by_codebook = tuple(figures[f"held_out_{q}"] for q in range(table.n_codebooks))
    return Predictability(
        nats_per_second=sum(by_codebook) * table.frame_rate,
        nats_by_codebook=by_codebook,
        parameters=trainer[0].model.n_parameters,
        spent=spent,
    )


def note_trainer(table: TokenTable, config: ComparisonConfig) -> NoteTrainer:
    """Makes a new note transformer and its batches; each instrument stands on a point of its own."""
    points = instrument_points(len(table.instruments))[table.instrument]
    training = NoteTrainingConfig(
        loop=loop_config(config),
        batch_steps=max(1, round(config.batch_seconds * table.frame_rate)),
        centroid_share=1.0,
        validation_notes=config.n_held_out_notes,
    )
    model = ModelConfig(
        codebook_size=table.codebook_size,
        n_codebooks=table.n_codebooks,
        d_model=config.d_model,
        d_feed_forward=4 * config.d_model,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        max_frames=math.floor(config.note_seconds * table.frame_rate),
    )
    still = np.zeros((len(points), 1), np.float32)
    conditions = TimbreConditions(own=points, centroid=points, noise=still)
    return NoteTrainer(training, model, table, conditions, torch.device("cpu"))


def instrument_points(n_instruments: int) -> NDArray[np.float32]:
    """Spreads points [n_instruments, 2] evenly over the unit disc, like a sunflower's seeds (Vogel, 1979)."""
    number = np.arange(n_instruments)
    radius = np.sqrt((number + 0.5) / n_instruments)
    angle = number * GOLDEN_ANGLE
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)


def loop_config(config: ComparisonConfig) -> LoopConfig:
    """Configures the note transformer's loop, but for its steps."""
    return LoopConfig(
        learning_rate=config.decoder_learning_rate,
        weight_decay=0.05,
        ema_decay=0.998,
        precision=config.precision,
        seed=config.seed,
    )


def _perplexity(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
