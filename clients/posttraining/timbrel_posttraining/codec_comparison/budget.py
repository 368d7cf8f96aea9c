"""Training for a given time, with as many steps as fit: the learning rate is down when time is up.

Time is the processor's, not the clock's: on a machine that others use as well every design gets the same.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from torch import nn

from timbrel_training.errors import TrainingError
from timbrel_training.loop import Loop, LoopConfig, LossFunction

REHEARSED_STEPS = 10
"""Steps of the rehearsal."""
UNTIMED_STEPS = 2
"""The first of those: they start codebooks and choose kernels."""
WARMUP_STEPS = 100
"""Longest warm-up; a tenth of a short run."""
Batch = TypeVar("Batch")


class StoppedError(TrainingError):
    """A signal ended a training before its time was up."""


@dataclass(frozen=True)
class Trainee(Generic[Batch]):
    """A training, as the loop needs it."""

    model: nn.Module
    loss: LossFunction[Batch]
    batch: Callable[[int], Batch]


@dataclass(frozen=True)
class Spent:
    """The time that a training had, and the steps that it did."""

    steps: int
    """Optimizer steps done."""
    planned_steps: int
    """Steps that the rehearsal promised; fewer were done where it was too hopeful."""
    seconds: float
    """Processor time, without the rehearsal."""


class Stopwatch(Generic[Batch]):
    """Gives a trainee's batches, noting the processor time at which each was asked for."""

    def __init__(self, batch: Callable[[int], Batch]) -> None:
        self._batch = batch
        self.times: list[float] = []
        """Processor times in seconds."""
        self.limit = math.inf
        """Seconds from the first batch on, after which `on_limit` is called."""
        self.on_limit: Callable[[], None] = lambda: None
        self.expired = False
        """Whether the limit was passed."""

    @property
    def elapsed(self) -> float:
        """Seconds from the first batch until now."""
        return time.process_time() - self.times[0] if self.times else 0.0

    def __call__(self, step: int) -> Batch:
        self.times.append(time.process_time())
        if self.elapsed > self.limit:
            self.expired = True
            self.on_limit()
        return self._batch(step)


def train_for(
    minutes: float, make: Callable[[], Trainee[Batch]], config: LoopConfig, folder: Path, name: str
) -> tuple[nn.Module, Spent]:
    """Trains what `make` makes, from its start, for some minutes.

    Args:
        minutes: processor time; a rehearsal of a few steps comes on top.
        make: makes the trainee anew, always the same.
        config: of the loop; its steps and warm-up are set here.
        folder: for the loop's files; whatever a killed run left there is removed.
        name: shown beside the progress bar.

    Returns:
        The averaged model, and what was done.

    Raises:
        StoppedError: SIGINT or SIGTERM ended it early.
        DivergedError: see Loop.
    """
    planned = max(1, int(60.0 * minutes / seconds_per_step(make, config, f"{name}, rehearsal")))
    shutil.rmtree(folder, ignore_errors=True)
    loop, watch = _timed_loop(make(), _planned(config, planned), folder, name)
    watch.limit, watch.on_limit = 60.0 * minutes, loop.stop
    loop.run()
    if not (loop.finished or watch.expired):
        raise StoppedError(f"{name}: stopped after {loop.step} of {planned} steps")
    loop.checkpoint_path.unlink(missing_ok=True)  # done with: nothing to resume
    return loop.ema.model, Spent(loop.step, planned, watch.elapsed)


def seconds_per_step(make: Callable[[], Trainee[Batch]], config: LoopConfig, name: str) -> float:
    """Median processor time of a step, from a few steps of a trainee that is then thrown away.

    Raises:
        StoppedError: SIGINT or SIGTERM ended it early.
    """
    with tempfile.TemporaryDirectory() as folder:
        loop, watch = _timed_loop(make(), _planned(config, REHEARSED_STEPS), Path(folder), name)
        loop.run()
    if not loop.finished:
        raise StoppedError(f"{name}: stopped after {loop.step} steps")
    timed = itertools.pairwise(watch.times[UNTIMED_STEPS:])
    return statistics.median(after - before for before, after in timed)


def _planned(config: LoopConfig, n_steps: int) -> LoopConfig:
    return replace(
        config,
        n_steps=n_steps,
        n_warmup=min(WARMUP_STEPS, n_steps // 10),
        max_minutes=0.0,
        checkpoint_every=n_steps + 1,
    )


def _timed_loop(
    trainee: Trainee[Batch], config: LoopConfig, folder: Path, name: str
) -> tuple[Loop[Batch], Stopwatch[Batch]]:
    watch = Stopwatch(trainee.batch)
    return Loop(config, trainee.model, trainee.loss, watch, folder, name=name), watch
