"""Trains the timbre map (stage 1): tokenised notes in, an encoder, a map and every note's point out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description, load_weights, save_weights
from timbrel_training.codec.interface import Codec
from timbrel_training.loop import Loop, batch_seed
from timbrel_training.notes.split import Split
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig
from timbrel_training.timbre.map import ENCODER, MapFigures, TimbreMap, measure, write_map
from timbrel_training.timbre.model import TimbreBatch, TimbreModel, TimbreTrainingConfig
from timbrel_training.tokens.table import TokenTable, require_training_notes

SHORTEST_CROP = 15
"""Frames: recordings shown to `locate` may be this short, so training sees such crops too."""
EMBED_BATCH = 512
"""Notes located at once after training."""


class TimbreTrainer:
    """Draws batches from a table of notes, trains, and places every note on the map."""

    def __init__(
        self, config: TimbreTrainingConfig, table: TokenTable, codec: Codec, device: torch.device
    ) -> None:
        require_training_notes(table)
        self.config = config
        self.table = table
        self.codec = codec.eval().to(device)
        self.device = device
        self.training_notes = table.of_split(Split.TRAIN)
        _, families = np.unique(np.array(table.families), return_inverse=True)
        torch.manual_seed(config.loop.seed)
        self.model = TimbreModel(config, codec.latent_dim, families.astype(np.int64)).to(device)
        self._fit_normalisation()

    def batch(self, step: int) -> TimbreBatch:
        """Draws random training notes; half of them cropped to a random shorter length."""
        config, table = self.config, self.table
        generator = np.random.default_rng(batch_seed(config.loop.seed, step))
        rows = generator.choice(self.training_notes, config.batch_size)
        codes, lengths = table.crops(rows, config.encoder.n_frames)
        shorter = generator.integers(SHORTEST_CROP, config.encoder.n_frames + 1, len(rows))
        lengths = np.where(generator.random(len(rows)) < 0.5, np.minimum(lengths, shorter), lengths)
        return TimbreBatch(
            codes=self._tensor(codes),
            n_frames=self._tensor(lengths),
            instrument=self._tensor(table.instrument[rows]),
            pitch=self._tensor(table.pitch[rows]),
            velocity=self._tensor(table.velocity[rows]),
            held_frames=self._tensor(table.held_frames[rows]),
            progress=step / config.loop.n_steps,
        )

    def loss(self, batch: TimbreBatch, /) -> tuple[Tensor, Mapping[str, Tensor]]:
        """See `TimbreModel.loss`."""
        return self.model.loss(batch, self._latents(batch.codes))

    @torch.no_grad()
    def locate_all(self, encoder: TimbreEncoder) -> NDArray[np.float32]:
        """Returns every note's point, float32 [N, 2]."""
        points = []
        for first in range(0, self.table.n_notes, EMBED_BATCH):
            rows = range(first, min(first + EMBED_BATCH, self.table.n_notes))
            codes, lengths = self.table.crops(rows, self.config.encoder.n_frames)
            latents = self._latents(torch.from_numpy(codes).to(self.device))
            points.append(encoder(latents, torch.from_numpy(lengths).to(self.device)).cpu())
        return torch.cat(points).numpy().astype(np.float32)

    def validate(self, average: nn.Module) -> dict[str, float]:
        """Measures how well the averaged encoder separates the instruments."""
        return dataclasses.asdict(measure(self.locate_all(encoder_of(average)), self.table))

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    @torch.no_grad()
    def _latents(self, codes: Tensor) -> Tensor:
        with torch.autocast(self.device.type, enabled=False):
            return self.codec.latents(codes).float()

    def _fit_normalisation(self, n_notes: int = 1000) -> None:
        generator = np.random.default_rng(self.config.loop.seed)
        rows = generator.permutation(self.training_notes)[:n_notes]
        codes, lengths = self.table.crops(rows, self.config.encoder.n_frames)
        present = np.arange(codes.shape[1]) < lengths[:, None]
        frames = torch.from_numpy(codes[present])[None].to(self.device)  # [1, frames, K]
        latents = self._latents(frames)[0]
        self.model.encoder.mean.copy_(latents.mean(dim=0))
        self.model.encoder.deviation.copy_(latents.std(dim=0).clamp(min=1e-4))


def train_timbre(
    config: TimbreTrainingConfig, table: TokenTable, codec: Codec, out_dir: Path, device: torch.device
) -> MapFigures:
    """Trains stage 1 in `out_dir`, or resumes it, and writes the map there; `map` describes the files."""
    trainer = TimbreTrainer(config, table, codec, device)
    fields = dataclasses.asdict(config)
    del fields["loop"]
    identity = {"timbre": fields, "codec": codec.id, "n_notes": table.n_notes}
    loop = Loop(
        config.loop,
        trainer.model,
        trainer.loss,
        trainer.batch,
        out_dir,
        validate=trainer.validate,
        identity=identity,
        name="timbre",
    )
    loop.run()
    encoder = encoder_of(loop.ema.model)
    points = trainer.locate_all(encoder)
    figures = measure(points, table)
    description = {
        "kind": "timbre_encoder",
        "encoder": dataclasses.asdict(config.encoder),
        "latent_dim": codec.latent_dim,
        "codec": codec.id,
        "steps": loop.step,
        "figures": dataclasses.asdict(figures),
    }
    save_weights(out_dir, ENCODER, encoder, description)
    write_map(out_dir, TimbreMap.from_points(points, table), points, table)
    return figures


def encoder_of(model: nn.Module) -> TimbreEncoder:
    """Returns the encoder within a TimbreModel or a copy of it."""
    encoder = model.encoder
    if not isinstance(encoder, TimbreEncoder):
        raise TypeError(f"{type(model).__name__} has no timbre encoder")
    return encoder


def load_encoder(folder: Path) -> TimbreEncoder:
    """Returns the trained encoder of a stage-1 folder, in eval mode.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    description = load_description(folder, ENCODER)
    encoder = TimbreEncoder(TimbreEncoderConfig(**description["encoder"]), description["latent_dim"])
    load_weights(folder, ENCODER, encoder)
    return encoder.eval()
