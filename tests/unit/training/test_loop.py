"""The shared training loop: what it learns, what it leaves behind, and that resuming changes nothing."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing import event_accumulator
from torch import Tensor, nn

from timbrel_training.checkpoint import (
    load_checkpoint,
    load_weights,
    replace_file,
    save_checkpoint,
    save_weights,
)
from timbrel_training.errors import CheckpointError, ConfigError, DivergedError, WriteError
from timbrel_training.loop import Loop, LoopConfig, batch_seed
from timbrel_training.optimization import learning_rate

CONFIG = LoopConfig(n_steps=12, n_warmup=3, validate_every=4, checkpoint_every=5, log_every=2)


def make_loop(
    folder: Path, config: LoopConfig = CONFIG, *, stop_at: int = 0, scale: float = 1.0
) -> Loop[Tensor]:
    """Learns y = sum(x) with dropout, so that the state of the random generator matters."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.GELU(), nn.BatchNorm1d(16), nn.Linear(16, 1))

    def batch_fn(step: int) -> Tensor:
        if step == stop_at - 1:
            loop.stop()
        return torch.randn(8, 4, generator=torch.Generator().manual_seed(batch_seed(config.seed, step)))

    def loss_fn(batch: Tensor, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        error = (model(batch)[:, 0] - batch.sum(1)).square().mean() * scale
        return error, {"error": error}

    def validate(average: nn.Module) -> dict[str, float]:
        torch.rand(3)  # must not disturb training
        return {"error": float(average(torch.ones(2, 4)).mean())}

    loop = Loop(config, model, loss_fn, batch_fn, folder, validate=validate, identity={"width": 16})
    return loop


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("stop_at", [4, 7])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(
    tmp_path: Path, stop_at: int, prefetch: bool
) -> None:
    config = dataclasses.replace(CONFIG, prefetch=prefetch)
    whole = make_loop(tmp_path / "whole", config)
    whole.run()
    first = make_loop(tmp_path / "parts", config, stop_at=stop_at)
    first.run()
    assert not first.finished
    second = make_loop(tmp_path / "parts", config)
    second.run()
    assert whole.finished and second.finished
    expected = load_checkpoint(whole.checkpoint_path)
    found = load_checkpoint(second.checkpoint_path)
    assert found["history"] == expected["history"]
    for part in ("model", "ema"):
        for name, tensor in expected[part].items():
            assert torch.equal(found[part][name], tensor), (part, name)
    for key, state in expected["optimizer"]["state"].items():
        for name, tensor in state.items():
            assert torch.equal(found["optimizer"]["state"][key][name], tensor), (key, name)


def test_shards_take_the_mean_gradient_of_their_batches(tmp_path: Path) -> None:
    def train(folder: Path, shards: int, n_rows: int) -> Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        rows = torch.randn(96, 4, generator=torch.Generator().manual_seed(2))
        config = dataclasses.replace(CONFIG, n_steps=4, shards=shards)

        def loss_fn(batch: Tensor, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
            error = (model(batch)[:, 0] - batch.sum(1)).square().mean()
            return error, {"error": error}

        Loop(config, model, loss_fn, lambda n: rows[n * n_rows : (n + 1) * n_rows], folder).run()
        return nn.utils.parameters_to_vector(model.parameters())

    whole, halves = train(tmp_path / "1", 1, 24), train(tmp_path / "2", 2, 12)
    assert torch.allclose(whole, halves, atol=1e-6)
    assert torch.equal(halves, train(tmp_path / "3", 2, 12))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_shards_come_to_the_same_whichever_of_them_is_quicker(tmp_path: Path, precision: str) -> None:
    def train(folder: Path, order: Sequence[int], *, at_once: bool) -> Tensor:
        """Lets one shard begin when the other is done; `at_once`: in the middle of the first, instead."""
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.3), nn.GELU(), nn.Linear(64, 1))
        config = dataclasses.replace(CONFIG, n_steps=3, shards=2, precision=precision)
        begun, done = [[threading.Event() for _ in range(6)] for _ in range(2)]

        def loss_fn(number: int, /) -> tuple[Tensor, Mapping[str, Tensor | float]]:
            other = number ^ 1
            rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
            if number % 2 == order[1]:
                assert (begun if at_once else done)[other].wait(10)
            error = (model(rows)[:, 0] - rows.sum(1)).square().mean()
            begun[number].set()
            if number % 2 == order[0] and at_once:
                assert done[other].wait(10)
            error = error + model(rows).square().mean()
            error.register_hook(lambda _: done[number].set())  # behind autocast
            return error, {}

        Loop(config, model, loss_fn, lambda number: number, folder).run()
        return nn.utils.parameters_to_vector(model.parameters())

    found = [
        train(tmp_path / f"{order}{at_once}", order, at_once=at_once)
        for order in ((0, 1), (1, 0))
        for at_once in (False, True)
    ]
    assert all(torch.equal(each, found[0]) for each in found)


def test_a_finished_run_is_not_trained_further(tmp_path: Path) -> None:
    make_loop(tmp_path).run()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    again = make_loop(tmp_path)
    again.run()
    assert again.finished
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_time_budget_ends_a_sitting_with_a_checkpoint(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, dataclasses.replace(CONFIG, max_minutes=1e-9))
    loop.run()
    assert loop.step == 1
    assert load_checkpoint(loop.checkpoint_path)["step"] == 1
    resumed = make_loop(tmp_path)  # max_minutes may differ
    resumed.run()
    assert resumed.finished


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_a_sitting_with_a_checkpoint_and_no_success(
    tmp_path: Path, number: signal.Signals, raised: type[BaseException]
) -> None:
    loop = make_loop(tmp_path)
    make_batch = loop.batch_fn

    def interrupted(step: int) -> Tensor:
        if step == 2:
            signal.raise_signal(number)
        return make_batch(step)

    loop.batch_fn = interrupted
    with pytest.raises(raised) as caught:
        loop.run()
    assert raised is KeyboardInterrupt or caught.value.args == (143,)
    assert load_checkpoint(loop.checkpoint_path)["step"] == 3
    make_loop(tmp_path).run()


def test_another_config_does_not_resume(tmp_path: Path) -> None:
    make_loop(tmp_path, stop_at=3).run()
    with pytest.raises(CheckpointError, match=r"learning_rate: 0\.001 there, 0\.5 here"):
        make_loop(tmp_path, dataclasses.replace(CONFIG, learning_rate=0.5)).run()


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: damaged"):
        make_loop(tmp_path).run()


def test_gradients_that_stay_nan_end_the_run_and_single_ones_do_not_spoil_weights(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "single")
    make_batch = loop.batch_fn
    loop.batch_fn = lambda step: make_batch(step) * (math.nan if 3 <= step < 9 else 1.0)
    loop.run()
    assert all(torch.isfinite(parameter).all() for parameter in loop.model.parameters())
    for n_steps in (12, 200):
        with pytest.raises(DivergedError, match=f"no finite gradient for {min(n_steps, 50)} steps; lower"):
            make_loop(
                tmp_path / str(n_steps), dataclasses.replace(CONFIG, n_steps=n_steps), scale=math.nan
            ).run()


def test_weights_that_are_no_longer_finite_end_the_run_and_replace_no_others(tmp_path: Path) -> None:
    validated: list[nn.Module] = []
    loop = make_loop(tmp_path, dataclasses.replace(CONFIG, learning_rate=math.inf))
    loop.validate = lambda average: validated.append(average) or {}  # type: ignore[func-returns-value]
    with pytest.raises(DivergedError, match="step 4: the weights are no longer finite; lower learning_rate"):
        loop.run()
    assert not validated and not loop.checkpoint_path.exists()


def test_curves_of_a_run_that_was_killed_are_drawn_once(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, log_every=1)
    make_loop(tmp_path, config, stop_at=5).run()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    make_loop(tmp_path, config, stop_at=9).run()
    (tmp_path / "checkpoint.pt").write_bytes(before)  # as if killed before another was written
    make_loop(tmp_path, config).run()
    curves = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [each.step for each in curves.Scalars("loss")] == list(range(1, 13))


def test_the_loop_learns_and_writes_scalars(tmp_path: Path) -> None:
    loop = make_loop(
        tmp_path, dataclasses.replace(CONFIG, n_steps=300, learning_rate=1e-2, validate_every=100)
    )
    loop.run()
    assert [entry["step"] for entry in loop.history] == [100, 200, 300]
    assert abs(loop.history[-1]["error"] - 4.0) < 1.5
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_bfloat16_trains(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, dataclasses.replace(CONFIG, precision="bfloat16"))
    loop.run()
    assert loop.finished
    with pytest.raises(ConfigError, match="precision"):
        LoopConfig(precision="float8")


def test_learning_rate_warms_up_then_falls() -> None:
    rates = [
        learning_rate(step, n_steps=100, n_warmup=10, peak=1.0, final_fraction=0.1) for step in range(101)
    ]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == max(rates) == 1.0
    assert rates[100] == pytest.approx(0.1)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[9:]))


def test_batch_seeds_differ_by_seed_and_step() -> None:
    seeds = {batch_seed(seed, step) for seed in range(20) for step in range(-1, 200)}
    assert len(seeds) == 20 * 201
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_full_disk_is_one_clear_line_and_leaves_what_there_was(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    path, model = tmp_path / "checkpoint.pt", nn.Linear(100, 100)
    save_checkpoint(path, {"step": 1})
    whole = path.read_bytes()
    with full_disk(2000):
        with pytest.raises(WriteError, match=r"checkpoint\.pt: cannot be written \(.*\); make room and run"):
            save_checkpoint(path, model.state_dict())
        with pytest.raises(WriteError, match=r"m\.safetensors: cannot be written"):
            save_weights(tmp_path, "m", model, {})
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"] and path.read_bytes() == whole


@pytest.mark.parametrize(
    ("number", "platform", "remedy"),
    [
        (errno.ENOSPC, "linux", "make room"),
        (errno.EACCES, "linux", "allow writing in its folder"),
        # Where no file, and no folder, can be replaced that a program has open: a server, a player.
        (errno.EACCES, "win32", "allow writing in its folder, or end what has it open,"),
        (errno.EROFS, "linux", "make its disk writable"),
        (errno.EIO, "linux", "put that right"),
    ],
)
def test_what_cannot_be_written_says_what_to_do_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, platform: str, remedy: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    def write(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    fault = rf"checkpoint\.pt: cannot be written \({os.strerror(number)}\); {remedy} and run the same command"
    with pytest.raises(WriteError, match=fault):
        replace_file(tmp_path / "checkpoint.pt", write)


def test_a_folder_that_went_meanwhile_is_to_be_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(WriteError, match=r"cannot be written \(.*\); make its folder and run"):
        replace_file(folder / "checkpoint.pt", lambda _: folder.rmdir())


def test_weights_travel_with_their_description(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    save_weights(tmp_path, "model", model, {"config": {"width": 3}})
    other = nn.Linear(2, 3)
    load_weights(tmp_path, "model", other)
    assert torch.equal(model.weight, other.weight)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(tmp_path, "model", nn.Linear(2, 4))
    with pytest.raises(CheckpointError, match="train it first"):
        load_weights(tmp_path, "absent", other)
