"""Training of one design's codec for a given time."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from timbrel_posttraining.codec_comparison.budget import Spent, Trainee, train_for
from timbrel_posttraining.codec_comparison.config import ComparisonConfig
from timbrel_posttraining.codec_comparison.design import Design
from timbrel_posttraining.codec_comparison.objective import DesignObjective
from timbrel_posttraining.codec_comparison.segments import Segments
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes.objective import SegmentBatch
from timbrel_training.loop import LoopConfig, batch_seed
from timbrel_training.notes.dataset import NoteDataset

DROPOUT_AFTER = 20
"""Steps before quantizer dropout begins: every codebook must have been started."""

NumberedBatch = tuple[int, SegmentBatch]
"""A step's number, which decides on its dropout, and its segments."""


def train_design(
    design: Design, library: NoteDataset, config: ComparisonConfig, folder: Path
) -> tuple[Codec, Spent]:
    """The design's codec after `config.minutes`, with averaged weights, ready to use.

    Raises:
        StoppedError: a signal ended it early.
        ConfigError: the library's sample rate does not suit the design.
    """
    average, spent = train_for(
        config.minutes,
        lambda: codec_trainee(design, library, config),
        loop_config(config),
        folder,
        design.name,
    )
    return cast(DesignObjective, average).codec.eval().requires_grad_(False), spent


def codec_trainee(design: Design, library: NoteDataset, config: ComparisonConfig) -> Trainee[NumberedBatch]:
    """The design at its start: the same weights and batches each time."""
    torch.manual_seed(config.seed)
    objective = DesignObjective(design)
    segments = Segments(library, objective.codec, config)

    def loss(numbered: NumberedBatch, /) -> tuple[Tensor, dict[str, Tensor]]:
        step, batch = numbered
        return objective(batch, n_codebooks_of(step, design, objective.n_residual_codebooks, config.seed))

    return Trainee(objective, loss, lambda step: (step, segments.draw(batch_seed(config.seed, step))))


def n_codebooks_of(step: int, design: Design, n_residual_codebooks: int, seed: int) -> int | None:
    """How many residual codebooks a step uses; None: all."""
    generator = np.random.default_rng(batch_seed(seed + 1, step))
    drop = step >= DROPOUT_AFTER and generator.random() < design.dropout_share
    if not drop or n_residual_codebooks < 2:
        return None
    return int(generator.integers(1, n_residual_codebooks))


def loop_config(config: ComparisonConfig) -> LoopConfig:
    """The codecs', but for its steps."""
    return LoopConfig(
        learning_rate=config.codec_learning_rate,
        beta1=0.8,
        beta2=0.99,
        precision=config.precision,
        seed=config.seed,
    )
