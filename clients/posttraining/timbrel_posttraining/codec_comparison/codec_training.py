"""Training for a given time, with as many steps as fit; and that of one design's codec.

Time is the processor's, not the clock's: on a machine that others use as well every design gets the same.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_posttraining.codec_comparison.designs import ComparisonConfig, Design, SeanetCodec
from timbrel_training.codec.discriminator import Discriminator
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.objective import (
    COMMITMENT_WEIGHT,
    CodecObjective,
    SegmentBatch,
    SpectralLoss,
)
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, SegmentSampler
from timbrel_training.errors import ConfigError, TrainingError
from timbrel_training.loop import Loop, LoopConfig, LossFunction, batch_seed
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split

DROPOUT_AFTER = 20
"""Steps before quantizer dropout begins: every codebook must have been started."""

NumberedBatch = tuple[int, SegmentBatch]
"""A step's number, which decides on its dropout, and its segments."""
Losses = tuple[Tensor, dict[str, Tensor]]
"""The scalar to minimise, and its named parts."""

REHEARSED_STEPS = 10
"""Steps of the rehearsal."""
UNTIMED_STEPS = 2
"""The first of those: they start codebooks and choose kernels."""
WARMUP_STEPS = 100
"""Longest warm-up; a tenth of a short run."""
Batch = TypeVar("Batch")


def train_design(
    design: Design, library: NoteDataset, config: ComparisonConfig, folder: Path
) -> tuple[Codec, Spent]:
    """Trains the design's codec for `config.minutes`: with averaged weights, ready to use.

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
    """Makes the design at its start: the same weights and batches each time."""
    torch.manual_seed(config.seed)
    objective = DesignObjective(design)
    segments = Segments(library, objective.codec, config)

    def loss(numbered: NumberedBatch, /) -> tuple[Tensor, dict[str, Tensor]]:
        step, batch = numbered
        return objective(batch, n_codebooks_of(step, design, objective.n_residual_codebooks, config.seed))

    return Trainee(objective, loss, lambda step: (step, segments.draw(batch_seed(config.seed, step))))


def n_codebooks_of(step: int, design: Design, n_residual_codebooks: int, seed: int) -> int | None:
    """Says how many residual codebooks a step uses; None: all."""
    generator = np.random.default_rng(batch_seed(seed + 1, step))
    drop = step >= DROPOUT_AFTER and generator.random() < design.dropout_share
    if not drop or n_residual_codebooks < 2:
        return None
    return int(generator.integers(1, n_residual_codebooks))


def loop_config(config: ComparisonConfig) -> LoopConfig:
    """Configures the loop, but for its steps."""
    return LoopConfig(
        learning_rate=config.codec_learning_rate,
        beta1=0.8,
        beta2=0.99,
        precision=config.precision,
        seed=config.seed,
    )


class Segments:
    """Draws batches of a library's training notes, each a function of its seed alone.

    All designs get the same pieces of notes, at each codec's own sample rate.

    Raises:
        ConfigError: the library's sample rate is below the codec's, or no multiple of its frame rate.
    """

    def __init__(self, library: NoteDataset, codec: Codec, config: ComparisonConfig) -> None:
        hop, rest = divmod(library.sample_rate * codec.hop_length, codec.sample_rate)
        if library.sample_rate < codec.sample_rate or rest:
            raise ConfigError(
                f"{library.path}: at {library.sample_rate} Hz, but a design works at {codec.sample_rate} Hz; "
                "render the notes at 48000 Hz"
            )
        self.library, self.codec = library, codec
        self.n_samples = max(1, round(config.segment_seconds * codec.frame_rate)) * codec.hop_length
        drawing = CodecTrainingConfig(
            codec=TimbrelNotesConfig(sample_rate=library.sample_rate, hop_length=hop),
            batch_size=config.batch_size,
            segment_frames=self.n_samples // codec.hop_length,
        )
        self.sampler = SegmentSampler(library, library.of_split(Split.TRAIN), drawing)

    def draw(self, seed: int) -> SegmentBatch:
        """Draws the batch of a seed."""
        batch = self.sampler.draw(seed, torch.device("cpu"))
        if self.library.sample_rate == self.codec.sample_rate:
            return batch
        audio = resample(batch.audio.numpy().T, self.library.sample_rate, self.codec.sample_rate).T
        fitted = np.zeros((len(audio), self.n_samples), np.float32)
        fitted[:, : audio.shape[1]] = audio[:, : self.n_samples]
        return SegmentBatch(torch.from_numpy(fitted), batch.pitch, batch.peak)


def resample(audio: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Resamples audio [samples] or [samples, channels] to another sample rate in Hz."""
    if rate == wanted:
        return audio
    return np.asarray(soxr.resample(audio, rate, wanted, quality="HQ"), np.float32)


class SeanetObjective(nn.Module):
    """SEANet with the spectral and commitment losses of timbrel-notes."""

    def __init__(self, codec: SeanetCodec) -> None:
        super().__init__()
        self.codec = codec
        self.spectral = SpectralLoss(codec.sample_rate)

    def forward(self, batch: SegmentBatch, n_codebooks: int | None = None) -> Losses:
        """Scores a batch: loss (scalar) and its parts; `n_codebooks` as in CodecObjective."""
        latents = self.codec.encoder(batch.audio).float()
        with torch.autocast(batch.audio.device.type, enabled=False):
            quantized, _, commitment = self.codec.quantizer(latents, n_codebooks)
        audio = self.codec.decoder(quantized).float()
        with torch.autocast(batch.audio.device.type, enabled=False):
            spectral = self.spectral(audio, batch.audio, batch.peak)
        parts = {"spectral": spectral.detach(), "commitment": commitment.detach()}
        return spectral + COMMITMENT_WEIGHT * commitment, parts


class DesignObjective(nn.Module):
    """Adds to the codec's own objective what the design asks for."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design
        self.own = _own_objective(design)
        self.discriminator = (
            Discriminator(design.discriminator, self.codec.sample_rate) if design.discriminator else None
        )

    @property
    def codec(self) -> Codec:
        """The codec that is being trained."""
        return self.own.codec

    @property
    def n_residual_codebooks(self) -> int:
        """The number of codebooks that quantizer dropout chooses from."""
        return self.own.codec.quantizer.n_codebooks

    def forward(self, batch: SegmentBatch, n_codebooks: int | None = None) -> Losses:
        """Scores a batch: loss (scalar) and its named parts; `n_codebooks` as in CodecObjective."""
        with (
            recorded_calls(self.own.codec.encoder) as encodings,
            recorded_calls(self.own.spectral) as comparisons,
        ):
            loss, parts = self.own(batch, n_codebooks)
        if self.design.added_steadiness:
            _, latents = encodings[-1]
            change = (latents[:, 1:] - latents[:, :-1]).float().abs().mean()
            loss = loss + self.design.added_steadiness * change
            parts["steadiness"] = change.detach()
        if self.discriminator is not None:
            (output, target, peak), _ = comparisons[-1]
            sides = self.discriminator.losses(output / peak[:, None], target / peak[:, None])
            loss = loss + self.discriminator.weighted(sides)
            parts |= {name: value.detach() for name, value in sides.items()}
        return loss, parts


@contextmanager
def recorded_calls(module: nn.Module) -> Iterator[list[tuple[tuple[Any, ...], Any]]]:
    """Records inputs and output of each call of a module within the block, gradients and all."""
    calls: list[tuple[tuple[Any, ...], Any]] = []
    handle = module.register_forward_hook(lambda _, inputs, output: calls.append((inputs, output)))
    try:
        yield calls
    finally:
        handle.remove()


def _own_objective(design: Design) -> CodecObjective | SeanetObjective:
    codec = design.make_codec()
    if isinstance(codec, TimbrelNotes):
        return CodecObjective(codec)
    if isinstance(codec, SeanetCodec):
        return SeanetObjective(codec)
    raise TypeError(f"{codec.id}: no objective for this codec")


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
        """True when the limit was passed."""

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
    """Measures the median processor time of a step, from a few steps of a trainee that is then thrown away.

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
