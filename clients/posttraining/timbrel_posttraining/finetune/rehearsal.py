"""Rehearsal: notes that a model writes to remember itself by.

The notes that a bundle was trained on do not ship with it. So before it learns new ones the model writes some
at the points of its own instruments, and while it learns it is held to them: pseudo-rehearsal (Robins,
"Catastrophic forgetting, rehearsal and pseudorehearsal", Connection Science, 1995).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel.progress import bar
from timbrel_posttraining.finetune.base import Base, NoteRanges
from timbrel_training.generation import write_notes
from timbrel_training.loop import batch_seed
from timbrel_training.model.sampling import Sampling
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import FineTuneConfig
from timbrel_training.timbre.map import TimbreMap, gaps
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

BETWEEN = "between instruments"
"""The instrument under which notes at random points are listed."""
SOURCE = "rehearsal"
AT_ONCE = 32
"""Notes written side by side."""
NEAR = 1.5
"""In spacings of the chart: instruments nearer than this to a new one are rehearsed more, being the first
to give way."""


@dataclass(frozen=True, eq=False)
class RehearsalPlan:
    """N notes to be written, in order of their holds: notes written side by side then end at like times."""

    timbre: NDArray[np.float32]  # [N, 2]
    pitch: NDArray[np.int64]  # [N]
    velocity: NDArray[np.int64]  # [N]
    held_frames: NDArray[np.int64]  # [N]
    names: tuple[tuple[str, str], ...]  # [N], instrument and family

    @classmethod
    def draw(
        cls,
        chart: TimbreMap,
        taken: NDArray[np.float32],
        ranges: NoteRanges,
        config: FineTuneConfig,
    ) -> RehearsalPlan:
        """Draws a plan that depends on nothing but the arguments: as many notes as the config says for each
        instrument of the old chart, more for those near points taken [n, 2] by new ones, and some between,
        none nearer to the new ones than the config's distance."""
        generator = np.random.default_rng(config.training.loop.seed)
        timbre, pitch, names = [], [], []
        near = gaps(chart.centroids, taken)
        for point, gap in zip(chart.points, near.tolist(), strict=True):
            count = config.rehearsal_notes + (config.near_notes if gap < NEAR * chart.spacing else 0)
            low, high = max(point.pitch_min, ranges.pitch[0]), min(point.pitch_max, ranges.pitch[1])
            timbre += [(point.x, point.y)] * count
            pitch.append(_spread(low, high, count, generator))
            names += [(point.instrument, point.family)] * count
        between = _disc(config.between_notes, generator)
        between = between[gaps(between, taken) >= config.distance * chart.spacing]
        pitch.append(_spread(*ranges.pitch, len(between), generator))
        count = len(timbre) + len(between)
        shortest, longest = map(math.log, ranges.held_frames)
        held = np.exp(generator.uniform(shortest, longest, count)).round().astype(np.int64)
        names += [(BETWEEN, BETWEEN)] * len(between)
        order = np.argsort(held, kind="stable")
        return cls(
            timbre=np.concatenate([np.array(timbre, np.float32).reshape(-1, 2), between])[order],
            pitch=np.concatenate(pitch)[order],
            velocity=generator.integers(ranges.velocity[0], ranges.velocity[1] + 1, count),
            held_frames=held[order],
            names=tuple(names[row] for row in order),
        )

    def __len__(self) -> int:
        return len(self.pitch)


def rehearse(
    base: Base, taken: NDArray[np.float32], config: FineTuneConfig, path: Path
) -> tuple[NDArray[np.float32], TokenTable | None]:
    """Has the base model write its rehearsal into a token store at `path`, unless it is there; see
    `RehearsalPlan.draw`. Returns the points [R, 2] at which they were written, and the notes: None where R is
    0."""
    plan = RehearsalPlan.draw(base.chart, taken, base.ranges, config)
    if len(plan) and not path.exists():
        write_rehearsal(base.model, plan, base.header, path, config)
    return plan.timbre, TokenTable.read(path) if len(plan) else None


def write_rehearsal(
    model: NoteTransformer, plan: RehearsalPlan, header: TokenHeader, path: Path, config: FineTuneConfig
) -> None:
    """Writes the plan's notes into a token store at `path`, in order; continues a killed run.

    The model is the one before it learns anything new, in evaluation mode, on the CPU; the header is of the
    codec whose codes it writes. Raises StoreError: there is a store at `path` already, or unfinished work of
    another codec.
    """
    with (
        TokenStoreWriter(path, header) as writer,
        bar("rehearsal", len(plan), "note", initial=len(writer)) as shown,
    ):
        begun = len(writer) // AT_ONCE * AT_ONCE  # a batch cut short is written again
        for first in range(begun, len(plan), AT_ONCE):
            rows = slice(first, min(first + AT_ONCE, len(plan)))
            seed = batch_seed(config.training.loop.seed + 2, first)
            written = write_notes(
                model,
                plan.timbre[rows],
                plan.pitch[rows],
                plan.velocity[rows].astype(np.float32),
                plan.held_frames[rows],
                Sampling(top_p=config.rehearsal_top_p),
                seed,
            )
            for row in range(len(writer), rows.stop):
                instrument, family = plan.names[row]
                codes = written[row - first]
                writer.add(
                    codes,
                    instrument=instrument,
                    family=family,
                    pitch=int(plan.pitch[row]),
                    velocity=int(plan.velocity[row]),
                    held_frames=int(plan.held_frames[row]),
                    source=SOURCE,
                    split=int(Split.TRAIN),
                    cut=len(codes) >= model.config.max_frames,
                )
                shown.update()
        writer.finish()


def _spread(low: int, high: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draws pitches [count], one at random from each of as many equal parts of low .. high."""
    parts = (np.arange(count) + generator.random(count)) / max(count, 1)
    return low + np.floor(parts * (high + 1 - low)).astype(np.int64)


def _disc(count: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Draws points [count, 2], uniform in the disc."""
    radius, angle = np.sqrt(generator.random(count)), generator.uniform(0.0, 2.0 * np.pi, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
