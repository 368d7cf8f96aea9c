"""A real engine under many ragged requests, against PyTorch: in whatever row, batch size and company a step
of a note was run, its logits are those of the model that is fed the note's codes and keeps no cache."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from oracle_comparison import OracleComparison
from ragged_notes import (
    Player,
    check_alone,
    check_empty,
    frame_rate,
    play_together,
    random_player,
    start_engine,
)
from recording_runner import RecordedNote, RecordingRunner
from waiting import wait_for

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import written_ranges
from timbrel_posttraining.finetune.base import Base
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import open_sessions
from timbrel_server.engine.engine_pool import EnginePool

MAX_LOGIT_DIFFERENCE = 1e-3
"""The tolerance of what was drawn, in fp32."""
MAX_MEAN_KL = 0.01
"""Nats per token, in lower precisions."""
MAX_SHARE_OF_OTHER_DRAWS = 1e-3
"""A uniform may lie so close to the edge between two tokens that the last bits of the logits decide."""


@dataclass
class Travels:
    """Counts what the notes that were compared went through."""

    batch_sizes: set[int] = field(default_factory=set)
    n_moved: int = 0
    """Notes that changed rows."""
    n_in_used_rows: int = 0
    n_of_many_sizes: int = 0
    """Notes that were run at three batch sizes or more."""
    n_released: int = 0
    n_cut: int = 0
    longest: int = 0
    """Positions."""

    def add(self, player: Player, recorded: RecordedNote, max_frames: int) -> None:
        sizes = {step.n_rows for step in recorded}
        self.batch_sizes |= sizes
        self.n_moved += len({step.row for step in recorded}) > 1
        self.n_in_used_rows += recorded.row_was_used
        self.n_of_many_sizes += len(sizes) > 2
        self.n_released += player.released_early
        self.n_cut += len(player.frames) == max_frames
        self.longest = max(self.longest, len(recorded.steps))


@dataclass
class Crowd:
    """A running engine that is recorded, and the model of its bundle."""

    bundle: Bundle
    runner: RecordingRunner
    engine: EnginePool
    comparison: OracleComparison
    travels: Travels = field(default_factory=Travels)

    def play(self, n_requests: int) -> list[Player]:
        """Plays random notes and compares those that finish, as they do; returns them."""
        rng = random.Random(1)
        players = [random_player(rng, self.engine, self.bundle) for _ in range(n_requests)]
        finished = []
        for player in play_together(rng, players, self.engine):
            if player.finished:
                recorded = self.runner.take(player.request)
                self.comparison.add(player, recorded)
                self.travels.add(player, recorded, self.bundle.manifest.model.max_frames)
                finished.append(player)
        check_empty(self.engine)
        print(f"{self.comparison}; {self.travels}")
        return finished

    def check_travels(self) -> None:
        """The notes met with all that may befall a note."""
        n_notes, travels = self.comparison.n_notes, self.travels
        assert travels.batch_sizes <= set(self.runner.buckets)
        assert {1, self.engine.n_slots} <= travels.batch_sizes
        assert len(travels.batch_sizes) > len(self.runner.buckets) // 2
        assert travels.n_in_used_rows > n_notes // 2
        assert min(travels.n_moved, travels.n_of_many_sizes, travels.n_released) > n_notes // 20
        longest_hold = written_ranges(self.bundle.manifest).seconds_max * frame_rate(self.bundle)
        assert travels.longest > longest_hold / 2


@pytest.fixture
def start_crowd() -> Iterator[Callable[..., Crowd]]:
    """`start_crowd(folder, n_slots, precision)`; its engine ends with the test, without a trace."""
    torch.set_num_threads(1)
    threads_before = set(threading.enumerate())
    engines: list[EnginePool] = []

    def start(folder: Path, n_slots: int, precision: str = "fp32") -> Crowd:
        base = Base.open(folder)
        sessions = open_sessions(base.bundle, "cpu", n_threads=1, precision=precision)
        runner = RecordingRunner(sessions, base.bundle.manifest, n_slots)
        engines.append(start_engine(base.bundle, n_slots, runner=runner))
        return Crowd(base.bundle, runner, engines[-1], OracleComparison(base.model))

    yield start
    for engine in engines:
        engine.stop()
    assert set(threading.enumerate()) <= threads_before


def check_logits(comparison: OracleComparison) -> None:
    assert comparison.max_chosen_difference <= MAX_LOGIT_DIFFERENCE
    assert comparison.max_difference <= MAX_LOGIT_DIFFERENCE
    assert comparison.n_other_draws <= MAX_SHARE_OF_OTHER_DRAWS * comparison.n_chosen


@pytest.mark.parametrize(("n_slots", "n_requests"), [(8, 120), (5, 60)])
def test_ragged_notes_have_the_oracles_logits(
    tiny_bundle: Path, start_crowd: Callable[..., Crowd], n_slots: int, n_requests: int
) -> None:
    crowd = start_crowd(tiny_bundle, n_slots)
    finished = crowd.play(n_requests)
    assert n_requests // 2 < len(finished) < n_requests
    check_logits(crowd.comparison)
    crowd.check_travels()


def test_ragged_notes_of_the_default_bundle_have_the_oracles_logits(
    start_crowd: Callable[..., Crowd],
) -> None:
    crowd = start_crowd(default_bundle_path(), 4)
    assert len(crowd.play(24)) > 12
    check_logits(crowd.comparison)


@pytest.mark.acceptance
def test_a_thousand_ragged_notes_are_each_as_alone_and_as_the_oracles(
    start_crowd: Callable[..., Crowd],
) -> None:
    crowd = start_crowd(default_bundle_path(), 16)
    memory_before = crowd.runner.memory
    finished = crowd.play(1000)
    assert len(finished) > 700
    check_logits(crowd.comparison)
    crowd.check_travels()
    assert crowd.travels.n_cut > 0
    assert crowd.runner.memory == memory_before
    solo = start_engine(crowd.bundle, n_slots=1)
    for player in finished:
        check_alone(player, solo)
    solo.stop()


@pytest.mark.acceptance
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_in_lower_precision_ragged_notes_are_as_alone_and_close_to_the_oracle(
    start_crowd: Callable[..., Crowd], precision: str
) -> None:
    crowd = start_crowd(default_bundle_path(), 16, precision)
    finished = crowd.play(200)
    assert len(finished) > 100
    assert crowd.comparison.precision.mean_kl <= MAX_MEAN_KL
    for player in finished:
        check_alone(player, crowd.engine)


def test_an_engine_keeps_nothing_of_notes_that_are_over(
    tiny_bundle: Path, start_crowd: Callable[..., Crowd]
) -> None:
    """Neither of those that finished, nor of those that were left, while waiting or in mid-note."""
    crowd = start_crowd(tiny_bundle, 4)
    memory_before, rng = crowd.runner.memory, random.Random(2)
    players = [random_player(rng, crowd.engine, crowd.bundle) for _ in range(80)]
    n_finished = sum(player.finished for player in play_together(rng, players, crowd.engine))
    check_empty(crowd.engine)
    assert 40 < n_finished < 80
    assert (crowd.engine.n_occupied, crowd.engine.engines[0].n_frames_left) == (0, 0)
    assert crowd.runner.memory == memory_before
    tickets = [weakref.ref(player.handle) for player in players if player.handle is not None]
    assert len(tickets) == 80
    del players

    def left() -> list[object]:
        gc.collect()
        return [ticket for ticket in tickets if ticket() is not None]

    # The last note is in the hands of the engine's thread until that comes to wait.
    wait_for(lambda: not left(), "every note to be gone", seen=left)
