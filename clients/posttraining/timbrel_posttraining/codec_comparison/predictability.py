"""How hard a codec's codes are to predict for a small note transformer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_posttraining.codec_comparison.budget import Spent, Trainee, train_for
from timbrel_posttraining.codec_comparison.config import ComparisonConfig
from timbrel_posttraining.codec_comparison.segments import resample
from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.errors import TrainingError
from timbrel_training.loop import LoopConfig
from timbrel_training.model.config import ModelConfig
from timbrel_training.note_training.batches import TimbreConditions
from timbrel_training.note_training.train import NoteBatch, NoteTrainer, NoteTrainingConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.tokens.table import TokenTable, from_notes

GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


@dataclass(frozen=True)
class Predictability:
    """Cross entropy of held-out notes under the note transformer."""

    nats_per_second: float
    """Per second of audio, all codebooks together."""
    nats_by_codebook: tuple[float, ...]
    """Per token."""
    parameters: int
    """Of the note transformer."""
    spent: Spent
    """What it was trained for."""

    @property
    def bits_per_second(self) -> float:
        """Per second of audio, all codebooks together."""
        return self.nats_per_second / math.log(2.0)


def chosen_notes(library: NoteDataset, config: ComparisonConfig) -> NDArray[np.intp]:
    """Training notes and held-out notes for the note transformer, always the same ones.

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
    """Codes of notes `rows`, cut after `note_seconds`."""
    n_samples = round(note_seconds * library.sample_rate)
    max_frames = math.floor(note_seconds * codec.frame_rate)
    notes = []
    for row in tqdm(rows, "codes", dynamic_ncols=True):
        audio = resample(library.audio(int(row), 0, n_samples), library.sample_rate, codec.sample_rate)
        codes = encode_note(codec, torch.from_numpy(audio), float(library.pitch[row]))
        notes.append(codes[:max_frames].numpy().astype(np.uint16))
    held = np.maximum(1, np.round(library.held_seconds[rows] * codec.frame_rate)).astype(np.int64)
    return from_notes(
        notes,
        instrument=library.instrument[rows].tolist(),
        pitch=library.pitch[rows].tolist(),
        velocity=library.velocity[rows].tolist(),
        held_frames=held.tolist(),
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
    """A new note transformer and its batches; each instrument stands on a point of its own."""
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
    """Points [n_instruments, 2] spread evenly over the unit disc, like a sunflower's seeds (Vogel, 1979)."""
    number = np.arange(n_instruments)
    radius = np.sqrt((number + 0.5) / n_instruments)
    angle = number * GOLDEN_ANGLE
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)


def loop_config(config: ComparisonConfig) -> LoopConfig:
    """The note transformer's, but for its steps."""
    return LoopConfig(
        learning_rate=config.decoder_learning_rate,
        weight_decay=0.05,
        ema_decay=0.998,
        precision=config.precision,
        seed=config.seed,
    )
