"""Training for a given time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from timbrel_posttraining.codec_comparison.codec_training import (
    StoppedError,
    Trainee,
    seconds_per_step,
    train_for,
)
from timbrel_training.loop import LoopConfig


class Processor:
    """A clock of processor time that moves on by what is burnt."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def burn(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    """The clock that the budget reads."""
    made = Processor()
    monkeypatch.setattr(time, "process_time", lambda: made.seconds)
    return made


class Burning:
    """A trainee whose steps take the processor a known time."""

    def __init__(self, processor: Processor, seconds: float, later_seconds: float | None = None) -> None:
        self.processor, self.seconds, self.later = processor, seconds, later_seconds
        self.made = 0

    def __call__(self) -> Trainee[int]:
        self.made += 1
        seconds = self.later if self.later and self.made > 1 else self.seconds
        model = nn.Linear(2, 1)

        def batch(step: int) -> int:
            self.processor.burn(seconds)
            return step

        def loss(step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
            return model(torch.ones(2)).square().sum(), {}

        return Trainee(model, loss, batch)


def test_steps_fill_the_time(processor: Processor, tmp_path: Path) -> None:
    model, spent = train_for(0.5, Burning(processor, 2.0), LoopConfig(), tmp_path / "run", "test")
    assert isinstance(model, nn.Linear)
    assert (spent.planned_steps, spent.steps, spent.seconds) == (15, 15, 30.0)
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_waiting_costs_no_time(processor: Processor) -> None:
    def make() -> Trainee[int]:
        trainee = Burning(processor, 2.0)()

        def batch(step: int) -> int:
            time.sleep(0.001)
            return trainee.batch(step)

        return Trainee(trainee.model, trainee.loss, batch)

    assert seconds_per_step(make, LoopConfig(), "test") == 2.0


def test_time_is_up_however_hopeful_the_rehearsal(processor: Processor, tmp_path: Path) -> None:
    _, spent = train_for(0.5, Burning(processor, 1.0, later_seconds=4.0), LoopConfig(), tmp_path, "test")
    assert spent.planned_steps == 30
    assert (spent.steps, spent.seconds) == (9, 36.0)  # the step that ends after time is up is the last


def test_a_signal_is_no_end_of_time(processor: Processor, tmp_path: Path) -> None:
    burning = Burning(processor, 1.0)

    def make() -> Trainee[int]:
        trainee = burning()

        def batch(step: int) -> int:
            if burning.made > 1 and step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return trainee.batch(step)

        return Trainee(trainee.model, trainee.loss, batch)

    with pytest.raises(StoppedError, match=r"test: stopped after 4 of 60 steps"):
        train_for(1.0, make, LoopConfig(), tmp_path, "test")
