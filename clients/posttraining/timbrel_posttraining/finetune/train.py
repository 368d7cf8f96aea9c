"""Trains a finished model further."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_posttraining.finetune.distillation import divergence
from timbrel_posttraining.finetune.material import Material
from timbrel_training.loop import Loop, batch_seed
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.note_training.batches import BatchPlan
from timbrel_training.note_training.train import NoteBatch, NoteTrainer
from timbrel_training.posttraining_config import FineTuneConfig

VALIDATION_BATCHES = 4
"""Batches of rehearsal that are looked at when the averaged weights are judged."""


@dataclass(frozen=True)
class FineTuneBatch:
    """What one step learns, and what it remembers."""

    samples: NoteBatch
    rehearsal: NoteBatch | None  # None: nothing is rehearsed


class FineTuner:
    """Draws batches of samples and of rehearsal, and scores the model on both."""

    def __init__(
        self, config: FineTuneConfig, model: NoteTransformer, material: Material, device: torch.device
    ) -> None:
        self.config = config
        self.material = material
        self.device = device
        training = config.training
        self.trainer = NoteTrainer(training, model.config, material.table, material.conditions, device)
        self.trainer.model.load_state_dict(model.state_dict())
        self.old = copy.deepcopy(model).eval().requires_grad_(False).to(device)
        self.rehearsal = material.rehearsal
        self.trainer.training_notes = material.samples
        self.trainer.plan = self._plan(material.samples, config.sample_share)
        self._rehearsal_plan = self._plan(self.rehearsal, 1.0 - config.sample_share)

    def batch(self, step: int) -> FineTuneBatch:
        """The training batch of a 0-based step."""
        return FineTuneBatch(self.trainer.batch(step), self._rehearse(step))

    def loss(self, batch: FineTuneBatch, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Nats per token of the samples, and how far the rehearsal has moved, by their shares."""
        learnt, _ = self.trainer.loss(batch.samples)
        if batch.rehearsal is None:
            return learnt, {"samples": learnt}
        moved = self._divergence(self.trainer.model, batch.rehearsal)
        share, weight = self.config.sample_share, self.config.rehearsal_weight
        return share * learnt + (1.0 - share) * weight * moved, {"samples": learnt, "moved": moved}

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Nats per token of samples, held out and trained on, and how far the rehearsal has moved."""
        figures = self.trainer.validate(average)
        batches = [self._rehearse(step) for step in range(VALIDATION_BATCHES)]
        moved = [self._divergence(cast(NoteTransformer, average), each) for each in batches if each]
        return {**figures, "moved": float(torch.stack(moved).mean())} if moved else figures

    def _rehearse(self, step: int) -> NoteBatch | None:
        if not len(self.rehearsal):
            return None
        notes = self.rehearsal[self._rehearsal_plan.batch(step)]
        training = self.config.training
        generator = np.random.default_rng(batch_seed(training.loop.seed + 3, step))
        points = self.material.conditions.draw(notes, training.centroid_share, generator)
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
    material: Material,
    out_dir: Path,
    device: torch.device,
    identity: Mapping[str, object],
) -> Loop[FineTuneBatch]:
    """Trains a copy of `model` in `out_dir`, or resumes that; `loop.ema.model` is the result.

    Args:
        config: see FineTuneConfig.
        model: to start from; left as it is.
        material: to train on.
        out_dir: receives the checkpoint.
        device: to train on.
        identity: what a checkpoint must share to be resumed, besides the config: plain data.

    Raises:
        CheckpointError: the checkpoint in `out_dir` was made from something else.
        DivergedError: the gradients stayed infinite or NaN.
    """
    tuner = FineTuner(config, model, material, device)
    fields = dataclasses.asdict(config)
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
