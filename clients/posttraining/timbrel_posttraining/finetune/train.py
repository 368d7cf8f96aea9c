"""Trains a finished model further, on samples and on rehearsal."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.loop import Loop, batch_seed
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.note_training.batches import BatchPlan, TimbreConditions
from timbrel_training.note_training.train import NoteBatch, NoteTrainer
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.timbre.map import TimbreMap
from timbrel_training.tokens.delay import IGNORED
from timbrel_training.tokens.table import TokenTable

VALIDATION_BATCHES = 4
"""Batches of rehearsal that are looked at when the averaged weights are judged."""


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The notes to train on. The first `n_samples` of the table are the new ones."""

    table: TokenTable
    conditions: TimbreConditions
    n_samples: int

    @property
    def samples(self) -> NDArray[np.int64]:
        """The numbers of the new notes to train on."""
        training = self.table.of_split(Split.TRAIN)
        return training[training < self.n_samples]

    @property
    def rehearsal(self) -> NDArray[np.int64]:
        """The numbers of the notes of rehearsal."""
        return np.arange(self.n_samples, self.table.n_notes)


def gather(
    samples: TokenTable,
    where: NDArray[np.float32],
    rehearsal: TokenTable | None,
    points: NDArray[np.float32],
    chart: TimbreMap,
    noise_fraction: float,
) -> TrainingSet:
    """Puts coded samples [N] of instruments at `where` [M, 2] and rehearsal [R], at its points [R, 2],
    together.

    Each instrument of the samples keeps some for training. All are learnt at their instrument's point: where
    single samples are heard is up and down the map, at the points of the old instruments of `chart`. Training
    adds noise to points, per coordinate, of `noise_fraction` of the distance to the nearest other instrument,
    old or new; of the chart's spacing at most.
    """
    samples = _with_training_notes(samples)
    at = np.concatenate([where[samples.instrument], points]).astype(np.float32)
    gaps = np.linalg.norm(at[:, None].astype(np.float64) - np.concatenate([chart.centroids, where]), axis=2)
    room = np.where(gaps > 0.0, gaps, np.inf).min(axis=1, initial=chart.spacing)
    return TrainingSet(
        table=samples if rehearsal is None else _join(samples, rehearsal),
        conditions=TimbreConditions(at, at, (noise_fraction * room)[:, None].astype(np.float32)),
        n_samples=samples.n_notes,
    )


@dataclass(frozen=True)
class FineTuneBatch:
    """The notes that one step learns, and those that it remembers."""

    samples: NoteBatch
    rehearsal: NoteBatch | None  # None: nothing is rehearsed


class FineTuner:
    """Draws batches of samples and of rehearsal, and scores the model on both."""

    def __init__(
        self, config: FineTuneConfig, model: NoteTransformer, notes: TrainingSet, device: torch.device
    ) -> None:
        self.config = config
        self.notes = notes
        self.device = device
        training = config.training
        self.trainer = NoteTrainer(training, model.config, notes.table, notes.conditions, device)
        self.trainer.model.load_state_dict(model.state_dict())
        self.old = copy.deepcopy(model).eval().requires_grad_(False).to(device)
        self.rehearsal = notes.rehearsal
        self.trainer.training_notes = notes.samples
        self.trainer.plan = self._plan(notes.samples, config.sample_share)
        self._rehearsal_plan = self._plan(self.rehearsal, 1.0 - config.sample_share)
        # Drawn once: a thread that makes batches ahead may be at the plan while the model is judged.
        self._judged_on = [self._rehearse(step) for step in range(VALIDATION_BATCHES)]

    def batch(self, step: int) -> FineTuneBatch:
        """Draws the training batch of a 0-based step."""
        return FineTuneBatch(self.trainer.batch(step), self._rehearse(step))

    def loss(self, batch: FineTuneBatch, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Scores nats per token of the samples, and how far the rehearsal has moved, by their shares."""
        learnt, _ = self.trainer.loss(batch.samples)
        if batch.rehearsal is None:
            return learnt, {"samples": learnt}
        moved = self._divergence(self.trainer.model, batch.rehearsal)
        share, weight = self.config.sample_share, self.config.rehearsal_weight
        return share * learnt + (1.0 - share) * weight * moved, {"samples": learnt, "moved": moved}

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Scores nats per token of samples, held out and trained on, and how far the rehearsal has moved."""
        figures = self.trainer.validate(average)
        moved = [self._divergence(cast(NoteTransformer, average), each) for each in self._judged_on if each]
        return {**figures, "moved": float(torch.stack(moved).mean())} if moved else figures

    def _rehearse(self, step: int) -> NoteBatch | None:
        if not len(self.rehearsal):
            return None
        notes = self.rehearsal[self._rehearsal_plan.batch(step)]
        training = self.config.training
        generator = np.random.default_rng(batch_seed(training.loop.seed + 3, step))
        points = self.notes.conditions.draw(notes, training.centroid_share, generator)
        return self.trainer.make_batch(notes, points)

    def _divergence(self, model: NoteTransformer, batch: NoteBatch) -> Tensor:
        to = self.device
        moved = NoteBatch(batch.timbre.to(to), batch.pitch.to(to), batch.velocity.to(to), batch.tokens.to(to))
        return divergence(model, self.old, moved)

    def _plan(self, notes: NDArray[np.int64], share: float) -> BatchPlan:
        training = self.config.training
        budget = max(1, round(share * training.batch_steps))
        return BatchPlan(self.trainer.n_steps[notes], budget, training.loop.seed)


def fine_tune(
    config: FineTuneConfig,
    model: NoteTransformer,
    notes: TrainingSet,
    out_dir: Path,
    device: torch.device,
    identity: Mapping[str, object],
) -> Loop[FineTuneBatch]:
    """Trains a copy of `model` in `out_dir`, or resumes that; `loop.ema.model` is the result.

    `identity` is plain data that a checkpoint must share to be resumed, besides the config. Raises
    CheckpointError: the checkpoint in `out_dir` was made from something else; DivergedError: the gradients
    stayed infinite or NaN.
    """
    tuner = FineTuner(config, model, notes, device)
    fields = asdict(config)
    del fields["training"]["loop"]
    loop = Loop(
        config.training.loop,
        tuner.trainer.model,
        tuner.loss,
        tuner.batch,
        out_dir,
        validate=tuner.validate,
        identity={"config": fields, **identity},
        name="finetune",
    )
    loop.run()
    return loop


def divergence(model: NoteTransformer, old: NoteTransformer, batch: NoteBatch) -> Tensor:
    """The KL divergence of the model's next tokens from the old one's: nats per token, each codebook alike.

    Hard tokens say which note was written, the old model's probabilities say which others might have been: a
    few hundred notes then hold a whole model in place ("Learning without forgetting", Li & Hoiem, 2016).
    """
    with torch.no_grad():
        wanted = _hidden(old, batch)
    found = _hidden(model, batch)
    parts = []
    for codebook in range(model.config.n_codebooks):
        asked = batch.tokens.targets[:, :, codebook] != IGNORED
        with torch.no_grad():
            target = _log_probabilities(old, wanted[asked], codebook)
        moved = _log_probabilities(model, found[asked], codebook)
        parts.append((target.exp() * (target - moved)).sum(dim=1).mean())
    return torch.stack(parts).mean()


def _hidden(model: NoteTransformer, batch: NoteBatch) -> Tensor:
    """Runs a model on a batch: its hidden states [B, S, d]."""
    tokens = batch.tokens
    return model.hidden(batch.timbre, batch.pitch, batch.velocity, tokens.tokens, tokens.gate)


def _log_probabilities(model: NoteTransformer, hidden: Tensor, codebook: int) -> Tensor:
    """Log-probabilities, float32 [N, V], of one codebook's tokens after hidden states [N, d]."""
    decoder = model.decoder
    return decoder.heads.one_codebook(hidden, decoder.tokens, codebook).log_softmax(dim=1)


def _with_training_notes(samples: TokenTable) -> TokenTable:
    """Trains on all notes of an instrument whose few pitches are all held out."""
    split = samples.split.copy()
    for index in range(len(samples.instruments)):
        own = samples.instrument == index
        if not (split[own] == int(Split.TRAIN)).any():
            split[own] = int(Split.TRAIN)
    return replace(samples, split=split)


def _join(first: TokenTable, second: TokenTable) -> TokenTable:
    """Joins two tables of one codec; instruments stay apart."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("codes", "source", "pitch", "velocity", "held_frames", "cut", "split")
    }
    return replace(
        first,
        **columns,
        offsets=np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
        instrument=np.concatenate([first.instrument, second.instrument + len(first.instruments)]),
        instruments=first.instruments + second.instruments,
        families=first.families + second.families,
    )
