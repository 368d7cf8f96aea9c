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


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class Burning:
    """A trainee whose steps take the processor a known time."""

    def __init__(self, seconds: float, later_seconds: float | None = None) -> None:
        self.seconds, self.later = seconds, later_seconds
        self.made = 0

    def __call__(self) -> Trainee[int]:
        self.made += 1
        seconds = self.later if self.later and self.made > 1 else self.seconds
        model = nn.Linear(2, 1)

        def batch(step: int) -> int:
            burn(seconds)
            return step

        def loss(step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
            return model(torch.ones(2)).square().sum(), {}

        return Trainee(model, loss, batch)


def test_steps_fill_the_time(tmp_path: Path) -> None:
    model, spent = train_for(0.5 / 60, Burning(0.02), LoopConfig(), tmp_path / "run", "test")
    assert isinstance(model, nn.Linear)
    assert 3 < spent.planned_steps <= 25
    assert spent.steps == spent.planned_steps or spent.seconds >= 0.5
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_waiting_costs_no_time() -> None:
    def make() -> Trainee[int]:
        trainee = Burning(0.0)()

        def batch(step: int) -> int:
            time.sleep(0.05)
            return step

        return Trainee(trainee.model, trainee.loss, batch)

    assert seconds_per_step(make, LoopConfig(), "test") < 0.03


def test_time_is_up_however_hopeful_the_rehearsal(tmp_path: Path) -> None:
    _, spent = train_for(0.5 / 60, Burning(0.002, later_seconds=0.05), LoopConfig(), tmp_path, "test")
    assert 0 < spent.steps < spent.planned_steps
    assert spent.seconds >= 0.5


def test_a_signal_is_no_end_of_time(tmp_path: Path) -> None:
    burning = Burning(0.01)

    def make() -> Trainee[int]:
        trainee = burning()

        def batch(step: int) -> int:
            if burning.made > 1 and step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return trainee.batch(step)

        return Trainee(trainee.model, trainee.loss, batch)

    with pytest.raises(StoppedError, match=r"test: stopped after 4 of \d+ steps"):
        train_for(1.0, make, LoopConfig(), tmp_path, "test")
