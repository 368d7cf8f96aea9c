"""Stage 1's decoder: what a note of this timbre sounds like, coarsely. It is thrown away after training."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.loop import LoopConfig
from timbrel_training.settings import check_at_least
from timbrel_training.timbre import losses
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig, frame_mask

SEGMENT_GROWTH = 1.6
"""Each segment of a note is this much longer than the one before: attacks change faster than tails."""


@dataclass(frozen=True)
class TimbreTrainingConfig:
    """Stage 1: its encoder, its schedule, and the weight of each loss."""

    encoder: TimbreEncoderConfig = field(default_factory=TimbreEncoderConfig)
    """The part that is kept."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_size: int = 384
    """Notes; losses over pairs want several notes of each instrument in a batch."""
    reconstruction_weight: float = 0.3
    """Of the squared error of normalised segment means: near neighbours on the map should sound alike."""
    divergence_weight: float = 0.002
    """Of the KL term: keeps the Gaussians from shrinking to points."""
    disc_weight: float = 10.0
    """Of the penalty outside the unit disc; high, since the export clamps what is left."""
    attraction_weight: float = 2.0
    """Of d^2 within an instrument, rising as the square root of progress."""
    repulsion_weight: float = 20.0
    """Of the squared hinge between instruments, rising likewise; hinges are small numbers."""
    family_weight: float = 0.5
    """Of family classification, falling to 0: it lays out the map before instruments claim their places."""
    instrument_weight: float = 0.5
    """Of instrument classification, rising from 0."""
    adversary_weight: float = 0.02
    """Of pitch and velocity read through gradient reversal; more makes the map restless."""
    margin: float = 0.0
    """Distance from which on instruments leave each other alone; 0: 1.6 / sqrt(n_instruments)."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, margin=0)


class TimbreDecoder(nn.Module):
    """A point, a pitch, a velocity and a hold to the mean latent of a few segments of the note.

    Segments, not frames: the map has to know a sound's colour and how it moves; the rest is noise to it.
    """

    edges: Tensor  # int64 [n_segments + 1], frames

    def __init__(self, latent_dim: int, n_frames: int, *, n_segments: int = 8, width: int = 256) -> None:
        super().__init__()
        self.n_frames = n_frames
        growth = torch.cat([torch.zeros(1), torch.cumsum(SEGMENT_GROWTH ** torch.arange(n_segments), 0)])
        edges = torch.round(growth / growth[-1] * n_frames).long()
        self.register_buffer("edges", torch.maximum(edges, torch.arange(n_segments + 1)), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 + 4 + 1 + 1, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, n_segments * latent_dim),
        )

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor, held_frames: Tensor) -> Tensor:
        """[B, n_segments, D].

        Args:
            timbre: float32 [B, 2].
            pitch: int64 [B], MIDI note number.
            velocity: int64 [B], 1..127.
            held_frames: int64 [B]; given, so that the map need not tell long notes from short ones.
        """
        octaves = (pitch.float() - 60.0) / 12.0
        waves = [octaves / 2.5, torch.sin(octaves), torch.cos(octaves), torch.sin(2 * octaves)]
        hold = held_frames.clamp(max=self.n_frames).float() / self.n_frames
        inputs = torch.stack([timbre[:, 0], timbre[:, 1], *waves, velocity.float() / 127.0, hold], dim=1)
        return self.layers(inputs).unflatten(1, (self.edges.shape[0] - 1, -1))

    def segments(self, latents: Tensor, n_frames: Tensor) -> tuple[Tensor, Tensor]:
        """The target: mean latents [B, n_segments, D]; and 1 where a segment has any [B, n_segments, 1]."""
        mask = frame_mask(n_frames, latents.shape[1])
        sums = _prefix(latents * mask)[:, self.edges]
        counts = _prefix(mask)[:, self.edges]
        totals, lengths = sums[:, 1:] - sums[:, :-1], counts[:, 1:] - counts[:, :-1]
        return totals / lengths.clamp(min=1.0), (lengths > 0).float()


def _prefix(x: Tensor) -> Tensor:
    """Sums of the first 0, 1, .. F frames: [B, F, D] -> [B, F + 1, D]."""
    return nn.functional.pad(x.cumsum(dim=1), (0, 0, 1, 0))


@dataclass(frozen=True)
class TimbreBatch:
    """Starts of notes, and how far training has come."""

    codes: Tensor  # int64 [B, F, K]
    n_frames: Tensor  # int64 [B]
    instrument: Tensor  # int64 [B]
    pitch: Tensor  # int64 [B]
    velocity: Tensor  # int64 [B]
    held_frames: Tensor  # int64 [B]
    progress: float  # 0..1


class TimbreModel(nn.Module):
    """The encoder with all that is needed to train it."""

    family_of: Tensor  # int64 [M]

    def __init__(self, config: TimbreTrainingConfig, latent_dim: int, families: NDArray[np.int64]) -> None:
        """families: int64 [M], the family of each instrument, counted from 0."""
        super().__init__()
        self.config = config
        n_instruments = len(families)
        self.margin = config.margin or losses.default_margin(n_instruments)
        self.encoder = TimbreEncoder(config.encoder, latent_dim)
        self.decoder = TimbreDecoder(latent_dim, config.encoder.n_frames)
        self.instruments = losses.Prototypes(n_instruments, self.margin / 4)
        self.families = losses.Prototypes(int(families.max()) + 1, 0.25)
        self.adversary = losses.Adversary()
        self.register_buffer("family_of", torch.from_numpy(families), persistent=False)

    def loss(self, batch: TimbreBatch, latents: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted sum and parts of the batch's losses; latents float32 [B, F, D]."""
        config = self.config
        mean, log_variance = self.encoder.distribution(latents, batch.n_frames)
        point = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        attraction, repulsion = losses.neighbours(mean, batch.instrument, self.margin)
        family = self.family_of[batch.instrument]
        parts = {
            "reconstruction": self._reconstruction(point, batch, latents),
            "divergence": losses.divergence(mean, log_variance),
            "outside_disc": losses.outside_disc(mean),
            "attraction": attraction,
            "repulsion": repulsion,
            "family": nn.functional.cross_entropy(self.families(point), family),
            "instrument": nn.functional.cross_entropy(self.instruments(point), batch.instrument),
            "adversary": self.adversary(mean, batch.pitch, batch.velocity),
        }
        rising = batch.progress**0.5
        weights = {
            "reconstruction": config.reconstruction_weight,
            "divergence": config.divergence_weight,
            "outside_disc": config.disc_weight,
            "attraction": config.attraction_weight * rising,
            "repulsion": config.repulsion_weight * rising,
            "family": config.family_weight * (1.0 - batch.progress),
            "instrument": config.instrument_weight * batch.progress,
            "adversary": config.adversary_weight,
        }
        total = torch.stack([weights[name] * part for name, part in parts.items()]).sum()
        return total, parts

    def _reconstruction(self, point: Tensor, batch: TimbreBatch, latents: Tensor) -> Tensor:
        normalised = self.encoder.normalise(latents)
        wanted, present = self.decoder.segments(normalised, batch.n_frames)
        found = self.decoder(point, batch.pitch, batch.velocity, batch.held_frames)
        return ((found - wanted).square() * present).sum() / (present.sum() * latents.shape[2])
