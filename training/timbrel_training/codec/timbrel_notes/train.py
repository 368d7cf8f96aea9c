"""Trains the timbrel-notes codec on a dataset of notes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_weights, save_weights
from timbrel_training.codec.interface import WEIGHTS_NAME, describe_folder
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.objective import CodecObjective, SegmentBatch
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.loop import Loop, LoopConfig, batch_seed, pick_device
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.settings import check_at_least, check_shares

VALIDATION_SEED = 7
MIN_SEGMENT_FRAMES = 8
"""A segment has to be longer than half the longest window of the spectral loss."""


@dataclass(frozen=True)
class CodecTrainingConfig:
    """The config section `codec`: the codec's sizes and its training."""

    codec: TimbrelNotesConfig = field(default_factory=TimbrelNotesConfig)
    """Its sizes."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps, rates, checkpoints."""
    batch_size: int = 12
    """Segments per step."""
    segment_frames: int = 48
    """Frames per segment: 1.28 s at 37.5 Hz, enough for an attack and its decay."""
    steadiness_weight: float = 0.1
    """Weight of the latents' change from frame to frame; see CodecObjective."""
    onset_share: float = 0.35
    """Share of segments that begin with the note: attacks are short but decide what one hears."""
    gain_db_min: float = -6.0
    """Lowest random gain in dB: recordings come at other levels than the dataset's."""
    gain_db_max: float = 9.0
    """Highest random gain in dB."""
    dropout_share: float = 0.25
    """Share of steps that use only the first few codebooks (quantizer dropout)."""
    dropout_after: int = 200
    """Steps before dropout begins: all codebooks must have been started."""
    n_kept_codebooks: int = 0
    """Codebooks that the finished codec keeps, 0 for all. Quantizer dropout trains every number of them:
    where the last ones hardly improve the sound, a codec without them is far easier to predict."""
    validation_batches: int = 8
    """Batches of held-out cells per validation."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=1, segment_frames=MIN_SEGMENT_FRAMES, validation_batches=1)
        check_at_least(self, steadiness_weight=0, dropout_after=0, gain_db_max=self.gain_db_min)
        check_shares(self, "onset_share", "dropout_share")


class SegmentSampler:
    """Draws batches of segments from some notes of a dataset, each a function of its seed alone."""

    def __init__(self, dataset: NoteDataset, notes: NDArray[np.intp], config: CodecTrainingConfig) -> None:
        if not len(notes):
            raise CheckpointError(f"{dataset.path}: no notes to train on in this split; render more")
        self.dataset, self.notes, self.config = dataset, notes, config
        self.n_samples = config.segment_frames * config.codec.hop_length

    def draw(self, seed: int, device: torch.device) -> SegmentBatch:
        """Returns the batch of a seed."""
        config, dataset = self.config, self.dataset
        generator = np.random.default_rng(seed)
        chosen = generator.choice(self.notes, config.batch_size)
        gains = 10 ** (generator.uniform(config.gain_db_min, config.gain_db_max, config.batch_size) / 20)
        audio = np.zeros((config.batch_size, self.n_samples), np.float32)
        for row, note in enumerate(chosen):
            latest = max(1, int(dataset.index["length"][note]) - self.n_samples // 3)
            start = 0 if generator.random() < config.onset_share else int(generator.integers(latest))
            piece = dataset.audio(int(note), start, self.n_samples)
            audio[row, : len(piece)] = piece * gains[row]
        peaks = dataset.index["scale"][chosen] * 32767 * gains
        return SegmentBatch(
            audio=torch.from_numpy(audio).to(device),
            pitch=torch.from_numpy(dataset.index["pitch"][chosen].astype(np.float32)).to(device),
            peak=torch.from_numpy(peaks.astype(np.float32)).to(device),
        )


def train_codec(config: CodecTrainingConfig, dataset: NoteDataset, out_dir: Path) -> TimbrelNotes | None:
    """Trains, or goes on training, the codec in `out_dir`.

    Returns:
        The finished codec with averaged weights, saved as codec.safetensors and codec.json; None where the
        sitting ended before the last step (run again to resume).
    """
    device = pick_device(config.device)
    identity = {"batch_size": config.batch_size, "steadiness_weight": config.steadiness_weight}
    torch.manual_seed(config.loop.seed)
    objective = CodecObjective(TimbrelNotes(config.codec), config.steadiness_weight).to(device)
    train = SegmentSampler(dataset, dataset.of_split(Split.TRAIN), config)
    held_out = dataset.of_split(Split.HELD_OUT_CELL)
    validation = SegmentSampler(dataset, held_out if len(held_out) else train.notes, config)

    def loss(numbered: tuple[int, SegmentBatch]) -> tuple[Tensor, dict[str, Tensor]]:
        step, batch = numbered
        generator = np.random.default_rng(batch_seed(config.loop.seed + 1, step))
        drop = step >= config.dropout_after and generator.random() < config.dropout_share
        n_codebooks = int(generator.integers(1, config.codec.n_residual_codebooks)) if drop else None
        return objective(batch, n_codebooks)

    loop = Loop(
        config.loop,
        objective,
        loss,
        lambda step: (step, train.draw(batch_seed(config.loop.seed, step), device)),
        out_dir,
        validate=lambda model: _validate(model, validation, config, device),
        identity={"codec": asdict(config.codec), **identity},
        name="codec",
    )
    loop.run()
    if not loop.finished:
        return None
    trained = cast(CodecObjective, loop.ema.model).codec
    if config.n_kept_codebooks:
        trained = keep_codebooks(trained, config.n_kept_codebooks)
    figures = loop.history[-1] if loop.history else {}
    description = {"id": trained.id, "config": asdict(trained.config), "figures": figures}
    save_weights(out_dir, WEIGHTS_NAME, trained, description)
    return trained


def keep_codebooks(codec: TimbrelNotes, n_codebooks: int) -> TimbrelNotes:
    """Returns the codec with its first codebooks only, the fundamental's among them.

    Raises:
        ConfigError: it has fewer, or none of the quantizer's would be left.
    """
    if not 2 <= n_codebooks <= codec.n_codebooks:
        raise ConfigError(f"n_kept_codebooks: {n_codebooks}, expected 2 to {codec.n_codebooks}, or 0 for all")
    smaller = TimbrelNotes(replace(codec.config, n_codebooks=n_codebooks)).to(next(codec.parameters()).device)
    wanted = smaller.state_dict()
    smaller.load_state_dict({name: value for name, value in codec.state_dict().items() if name in wanted})
    return smaller.eval()


def load_codec(folder: Path) -> TimbrelNotes:
    """Returns the codec that `train_codec` finished in `folder`, ready to use.

    Raises:
        CheckpointError: nothing finished there, or damaged.
    """
    codec = TimbrelNotes(TimbrelNotesConfig(**describe_folder(folder, TimbrelNotes.id)["config"]))
    load_weights(folder, WEIGHTS_NAME, codec)
    return codec.eval().requires_grad_(False)


def _validate(
    model: nn.Module, sampler: SegmentSampler, config: CodecTrainingConfig, device: torch.device
) -> dict[str, float]:
    """Returns the mean losses on held-out cells, and how many codes each residual codebook uses there."""
    assert isinstance(model, CodecObjective)
    sums: dict[str, float] = {}
    used: list[set[int]] = [set() for _ in range(config.codec.n_residual_codebooks)]
    for number in range(config.validation_batches):
        batch = sampler.draw(batch_seed(VALIDATION_SEED, number), device)
        _, parts = model(batch)
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + float(value) / config.validation_batches
        codes = model.codec.encode(batch.audio, batch.pitch)[:, :, 1:].flatten(0, 1).T
        for book, row in zip(used, codes.tolist(), strict=True):
            book.update(row)
    return {**sums, **{f"codes_used_{q + 1}": float(len(book)) for q, book in enumerate(used)}}
