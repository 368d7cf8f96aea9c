"""The training loop that every stage shares: codec, timbre space, note transformer.

    loop = Loop(config, model, loss_fn, batch_fn, out_dir, validate=validate)
    loop.run()                 # resumes from out_dir/checkpoint.pt if that exists
    loop.ema.model             # the averaged weights

A run is a function of its config and seed. The batch of a step is derived from the step's number, and the
checkpoint holds everything else that lives from step to step, so a run that was interrupted and resumed ends
with the same bits as one that was not (on a CPU, with the same number of threads).
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from tqdm import tqdm

from timbrel_training.checkpoint import load_checkpoint, save_checkpoint
from timbrel_training.errors import CheckpointError, ConfigError, DivergedError
from timbrel_training.optimization import FLOAT32, Ema, autocast, check_precision, learning_rate
from timbrel_training.progress import bar
from timbrel_training.settings import check_at_least, check_positive, check_shares

MAX_BAD_STEPS = 50
"""Steps in a row with gradients that are not finite before a run is given up."""

DROPOUT = 4
"""What is added to a run's seed for the dropout of its shards."""

BatchT = TypeVar("BatchT")
Made = TypeVar("Made")


@dataclass(frozen=True)
class LoopConfig:
    """The length and speed of a training; every stage has the same fields."""

    n_steps: int = 1000
    """Optimizer steps of the whole run; the cosine ends here."""
    max_minutes: float = 0.0
    """Wall-clock minutes after which this sitting stops with a checkpoint; 0: no limit. Resume to go on; the
    command says so, and its exit status is 3."""
    learning_rate: float = 1e-3
    """Peak of the schedule."""
    n_warmup: int = 100
    """Steps of linear warm-up: Adam's second moments are noise at first."""
    final_fraction: float = 0.02
    """Learning rate at the end as a fraction of the peak; not 0, so that the last steps still count."""
    beta1: float = 0.9
    """AdamW's decay of the gradient's mean."""
    beta2: float = 0.98
    """AdamW's decay of the gradient's square; below the usual 0.999, since runs here are short."""
    weight_decay: float = 0.01
    """AdamW's, on matrices and kernels; never on biases, gains and norms."""
    clip_norm: float = 1.0
    """Largest gradient norm; longer gradients are scaled down to it."""
    ema_decay: float = 0.999
    """Decay per step of the averaged weights: about the last 1,000 steps."""
    precision: str = FLOAT32
    """`float32`, `bfloat16` for autocast, or `auto`: the latter where the CPU or GPU is built for it, and
    several times faster in it than without."""
    prefetch: bool = False
    """Make the next batch in a thread ahead; `batch_fn` must then leave torch's global generator alone."""
    shards: int = 1
    """Batches per step, each in a thread of its own, gradients averaged: on a CPU one batch per core is about
    twice as fast as all cores on every operation. `loss_fn` must then draw no random numbers but those of
    dropout, and write no buffers."""
    validate_every: int = 500
    """Steps between validations of the averaged weights; the last step is always validated."""
    checkpoint_every: int = 500
    """Steps between checkpoints; one is always left at the end of a sitting."""
    log_every: int = 20
    """Steps between TensorBoard scalars, which are means over those steps."""
    seed: int = 0
    """Fixes batches, noise and dropout, and the initial weights of the stages."""

    def __post_init__(self) -> None:
        check_precision(self.precision)
        check_at_least(self, n_steps=1, shards=1, validate_every=1, checkpoint_every=1, log_every=1)
        check_at_least(self, n_warmup=0, max_minutes=0, weight_decay=0)
        check_positive(self, "learning_rate", "clip_norm")
        check_shares(self, "final_fraction", "ema_decay")
        for name, end in (("beta1", 1), ("beta2", 1), ("seed", 2**64)):
            if not 0 <= getattr(self, name) < end:
                raise ConfigError(f"{name}: {getattr(self, name)}, expected at least 0 and below {end}")


LossFunction = Callable[[BatchT], tuple[Tensor, Mapping[str, Tensor | float]]]
"""Called under autocast, in training mode: gives the scalar to minimise, and scalars to log."""
Validate = Callable[[nn.Module], Mapping[str, float]]
"""Called with the averaged model in eval mode, without gradients; its scalars are logged and kept."""
Log = Callable[[Mapping[str, float], int], None]
"""Called with scalars and the step that they are of."""


class Loop(Generic[BatchT]):
    """Trains `model` in place.

    Args:
        config: see LoopConfig.
        model: all trained modules in one; already on its device.
        loss_fn: of a batch; reads `model` itself (a closure or a bound method).
        batch_fn: of a 0-based batch number (the step, or step * shards + shard); must depend on nothing else
            (derive generators from `batch_seed`).
        out_dir: receives checkpoint.pt and TensorBoard's event files.
        validate: see Validate.
        identity: plain data that a checkpoint must share to be resumed, such as the model's config.
        later_identity: more of it, of which checkpoints of earlier timbrels lack some; what one lacks is not
            compared.
        name: shown beside the progress bar.
    """

    def __init__(
        self,
        config: LoopConfig,
        model: nn.Module,
        loss_fn: LossFunction[BatchT],
        batch_fn: Callable[[int], BatchT],
        out_dir: Path,
        *,
        validate: Validate | None = None,
        identity: Mapping[str, Any] | None = None,
        later_identity: Mapping[str, Any] | None = None,
        name: str = "train",
    ) -> None:
        self.config = config
        self.model = model
        self.loss_fn = loss_fn
        self.batch_fn = batch_fn
        self.out_dir = Path(out_dir)
        self.validate = validate
        self.name = name
        self.step = 0
        """Steps taken so far."""
        self.history: list[dict[str, float]] = []
        """One entry per validation, with its step."""
        self.device = next(model.parameters()).device
        self.ema = Ema(model, config.ema_decay)
        self.optimizer = _optimizer(model, config, self.device)
        self._identity = {"identity": dict(identity or {}), "loop": _resumable(config)}
        self._later_identity = dict(later_identity or {})
        self._stop = threading.Event()
        self._signal: int | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def checkpoint_path(self) -> Path:
        """The file of the resumable state."""
        return self.out_dir / "checkpoint.pt"

    @property
    def finished(self) -> bool:
        """True once all steps were taken; a sitting may also end at `max_minutes`."""
        return self.step >= self.config.n_steps

    def stop(self) -> None:
        """Ends the sitting after the step in progress, with a checkpoint."""
        self._stop.set()

    def _stop_on(self, number: int) -> None:
        self._signal = number
        self.stop()

    def run(self) -> None:
        """Trains to the end of the run or of the sitting, resuming where a checkpoint left off. Raises
        CheckpointError: the checkpoint in `out_dir` was made by another config; DivergedError: the gradients
        stayed infinite or NaN, or the weights came to be so; KeyboardInterrupt, SystemExit: SIGINT or SIGTERM
        came, and the checkpoint is written."""
        self.out_dir.mkdir(parents=True, exist_ok=True)
        torch.set_flush_denormal(True)  # numbers near 0 that CPUs are slow with
        if self.checkpoint_path.exists():
            self._restore(load_checkpoint(self.checkpoint_path))
        else:
            torch.manual_seed(batch_seed(self.config.seed, -1))
        with (
            _stopping_on_signals(self._stop_on),
            _event_files(self.out_dir, self.step) as log,
            _side_by_side(self.config.shards) as self._pool,
        ):
            self._train(log)
        self.model.eval()
        if self._signal is not None and not self.finished:
            # What the stage would go on to write, and whoever waits for it, are not for half a model.
            raise KeyboardInterrupt if self._signal == signal.SIGINT else SystemExit(128 + self._signal)

    def _train(self, log: Log) -> None:
        config = self.config
        deadline = time.monotonic() + 60 * config.max_minutes if config.max_minutes else math.inf
        window: defaultdict[str, list[float]] = defaultdict(list)
        n_bad = 0
        saved_at = self.step
        shown = bar(description=self.name, total=config.n_steps, unit="step", initial=self.step)
        with shown, _ahead(self._batches_of, self.step, config.n_steps, config.prefetch) as steps:
            for batches in steps:
                logged = self._take_step(batches)
                n_bad = 0 if math.isfinite(logged["gradient_norm"]) else n_bad + 1
                if n_bad >= min(MAX_BAD_STEPS, config.n_steps):
                    raise DivergedError(
                        f"step {self.step}: no finite gradient for {n_bad} steps; lower learning_rate"
                    )
                for key, value in logged.items():
                    window[key].append(value)
                shown.update()
                if self.step % config.log_every == 0:
                    means = {key: sum(values) / len(values) for key, values in window.items()}
                    window.clear()
                    log(means, self.step)
                    shown.set_postfix(loss=f"{means['loss']:.4f}", refresh=False)
                if self.validate and (self.step % config.validate_every == 0 or self.finished):
                    self._run_validation(self.validate, log)
                if self.step % config.checkpoint_every == 0:
                    self._save()
                    saved_at = self.step
                if self._stop.is_set() or time.monotonic() > deadline:
                    break
        if saved_at != self.step:
            self._save()

    def _batches_of(self, step: int) -> list[BatchT]:
        shards = self.config.shards
        return [self.batch_fn(step * shards + shard) for shard in range(shards)]

    def _take_step(self, batches: list[BatchT]) -> dict[str, float]:
        config = self.config
        rate = learning_rate(
            self.step,
            n_steps=config.n_steps,
            n_warmup=config.n_warmup,
            peak=config.learning_rate,
            final_fraction=config.final_fraction,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        if len(batches) == 1:
            loss, logged = self._loss(batches[0])
            loss.backward()
        else:
            loss, logged = self._backward_in_threads(batches)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm))
        if math.isfinite(norm):
            self.optimizer.step()
            self.ema.update(self.model, self.step)
        self.step += 1
        scalars = {key: float(torch.as_tensor(value).detach()) for key, value in logged.items()}
        return {"loss": float(loss.detach()), **scalars, "gradient_norm": norm, "learning_rate": rate}

    def _loss(self, batch: BatchT) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        with autocast(self.device, self.config.precision, cached=self.config.shards == 1):
            return self.loss_fn(batch)

    def _backward_in_threads(self, batches: list[BatchT]) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Leaves the batches' mean gradient in the parameters; returns the mean loss and scalars."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]

        def work(
            shard: int, batch: BatchT
        ) -> tuple[Tensor, Mapping[str, Tensor | float], tuple[Tensor | None, ...]]:
            seed = batch_seed(self.config.seed + DROPOUT, self.step * len(batches) + shard)
            with _SeededDropout(seed, self.device):
                loss, logged = self._loss(batch)
            return loss.detach(), logged, torch.autograd.grad(loss, trained, allow_unused=True)

        if self._pool is None:
            raise RuntimeError("a step was taken outside run()")
        done = self._pool.map(work, range(len(batches)), batches)
        losses, scalars, gradients = zip(*done, strict=True)
        for parameter, *parts in zip(trained, *gradients, strict=True):
            present = [part for part in parts if part is not None]
            parameter.grad = torch.stack(present).sum(dim=0) / len(batches) if present else None
        means = {
            key: sum(float(torch.as_tensor(each[key]).detach()) for each in scalars) / len(batches)
            for key in scalars[0]
        }
        return torch.stack(losses).mean(), means

    @torch.no_grad()
    def _run_validation(self, validate: Validate, log: Log) -> None:
        self._check_weights()
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            figures = dict(validate(self.ema.model))
        self.history.append({"step": float(self.step), **figures})
        log({f"validation/{key}": value for key, value in figures.items()}, self.step)
        told = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
        tqdm.write(f"{self.name} step {self.step}: {told}")

    def _check_weights(self) -> None:
        """Raises DivergedError for weights that nothing can be done with, before they replace others."""
        if not all(bool(weight.isfinite().all()) for weight in self.ema.model.parameters()):
            raise DivergedError(f"step {self.step}: the weights are no longer finite; lower learning_rate")

    def _save(self) -> None:
        self._check_weights()
        state: dict[str, Any] = {
            **self._identity,
            "later_identity": self._later_identity,
            "step": self.step,
            "history": self.history,
            "model": self.model.state_dict(),
            "ema": self.ema.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state(self.device)
        save_checkpoint(self.checkpoint_path, state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        stated = state.get("later_identity") or {}
        expected = {**self._identity, "later_identity": {**stated, **self._later_identity}}
        found = {**state, "later_identity": {**self._later_identity, **stated}}
        for part, wanted in expected.items():
            if found.get(part) != wanted:
                changed = _first_difference(found.get(part) or {}, wanted)
                raise CheckpointError(
                    f"{self.checkpoint_path}: made by another config or of other data ({changed}); "
                    "use those, another folder, or delete the checkpoint"
                )
        self.model.load_state_dict(state["model"])
        self.ema.model.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.history = list(state["history"])
        torch.set_rng_state(state["rng"])
        if self.device.type == "cuda" and "cuda_rng" in state:
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)


def batch_seed(seed: int, step: int) -> int:
    """Returns a seed for the batch of a step: splitmix64 of (seed, step), 63 bits."""
    mask = (1 << 64) - 1
    value = ((seed & mask) * 0x9E3779B97F4A7C15 + (step & mask) + 0x632BE59BD9B4E019) & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & mask
    return (value ^ (value >> 31)) >> 1


def pick_device(name: str) -> torch.device:
    """Returns the device named `auto` (a GPU where there is one), `cpu` or `cuda`. Raises ConfigError:
    another name, or no GPU to be had."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"device: {name!r}, expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda was asked for, but torch sees no CUDA device")
    return torch.device(name)


def n_cores() -> int:
    """Returns how many cores this process is bound to: a batch job may have some of a machine's alone."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _optimizer(model: nn.Module, config: LoopConfig, device: torch.device) -> torch.optim.AdamW:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, fused=True)


def _resumable(config: LoopConfig) -> dict[str, Any]:
    """Returns the fields that a resumed run must share with the interrupted one."""
    free = ("max_minutes", "prefetch", "validate_every", "checkpoint_every", "log_every")
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in free}


def _first_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    for key in sorted({*found, *expected}):
        if found.get(key) != expected.get(key):
            return f"{key}: {found.get(key)!r} there, {expected.get(key)!r} here"
    return "unknown difference"


@contextmanager
def _ahead(make: Callable[[int], Made], first: int, last: int, prefetch: bool) -> Iterator[Iterator[Made]]:
    """Yields an iterator of `make`'s results for first .. last - 1; `prefetch` makes one ahead."""
    if not prefetch:
        yield (make(step) for step in range(first, last))
        return
    with ThreadPoolExecutor(1, "batches") as pool:

        def ahead() -> Iterator[Made]:
            future: Future[Made] = pool.submit(make, first)
            for step in range(first, last):
                made = future.result()
                if step + 1 < last:
                    future = pool.submit(make, step + 1)
                yield made

        yield ahead()


@contextmanager
def _side_by_side(shards: int) -> Iterator[ThreadPoolExecutor]:
    """Yields threads for the shards, one core each. With several, this one keeps to one core too: the teams
    of threads behind large operations wait by spinning, and would fight the shards for their cores."""
    n_threads = torch.get_num_threads()
    if shards > 1:
        torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(shards, "shard", _prepare_shard) as pool:
            yield pool
    finally:
        torch.set_num_threads(n_threads)


def _prepare_shard() -> None:
    """Sets what each thread has for itself."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


class _SeededDropout(TorchFunctionMode):
    """Lets the dropout of the thread that enters it draw from a generator of its own: from the one that all
    threads share they would draw in the order in which they happen to run, and no run would repeat."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self._generator = torch.Generator(device).manual_seed(seed)

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        own = self._dropout if func is nn.functional.dropout else func
        return own(*args, **(kwargs or {}))

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0.0:
            return x
        kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(1.0 - p, generator=self._generator)
        return (x * kept).mul_(1.0 / (1.0 - p) if p < 1.0 else 0.0)


@contextmanager
def _stopping_on_signals(stop: Callable[[int], None]) -> Iterator[None]:
    """Lets SIGINT and SIGTERM end the sitting at the next step; a second one breaks off at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    previous: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def handler(number: int, _frame: object) -> None:
        stop(number)
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


@contextmanager
def _event_files(folder: Path, step: int) -> Iterator[Log]:
    """Yields what writes to TensorBoard's event files in a folder, where those of another sitting count up to
    this step; it does nothing where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda scalars, step: None
        return
    with SummaryWriter(str(folder), purge_step=step + 1, flush_secs=30) as writer:

        def log(scalars: Mapping[str, float], step: int) -> None:
            for key, value in scalars.items():
                writer.add_scalar(key, value, step)

        yield log
