"""The model of stage 1, of which only the encoder is kept, and the config of its training."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.loop import LoopConfig
from timbrel_training.settings import check_at_least, check_shares
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
    """Weight of the squared error of normalised segment means: neighbours on the map should sound alike."""
    divergence_weight: float = 0.002
    """Weight of the KL term: keeps the Gaussians from shrinking to points."""
    disc_weight: float = 10.0
    """Weight of the penalty outside the unit disc; high, since the export clamps what is left."""
    attraction_weight: float = 2.0
    """Weight of d^2 within an instrument, rising as the square root of progress."""
    repulsion_weight: float = 20.0
    """Weight of the squared hinge between instruments, rising likewise; hinges are small numbers."""
    family_weight: float = 0.5
    """Weight of telling families, falling to 0: it lays out the map before instruments claim their places."""
    instrument_weight: float = 0.5
    """Weight of instrument classification, rising from 0."""
    adversary_weight: float = 0.02
    """Weight of pitch and velocity read through gradient reversal; more makes the map restless."""
    name_weight: float = 0.5
    """Weight of telling instruments, and sounds that are none, by the embedding."""
    recorded_notes: int = 12_000
    """Training notes heard once more as recordings: in rooms, as MP3, out of tune (`recordings.py`)."""
    recorded_share: float = 0.5
    """Share of a batch's notes that is drawn from those; the others are clean."""
    disturbed_share: float = 0.5
    """Share of these and of foreign sounds that a random microphone's colour and noise are put on, drawn anew
    each time."""
    foreign_sounds: int = 3_000
    """Sounds that are no note of an instrument (`foreign.py`), from which notes are told."""
    foreign_share: float = 0.125
    """So many of them in a batch, as a share of its notes."""
    shift_bands: int = 2
    """A note's spectrum is moved by up to so many bands either way, at random: so that none is known by its
    pitch, and the map finds an instrument at pitches that it was not trained on too."""
    margin: float = 0.0
    """Distance from which on instruments leave each other alone; 0: 1.6 / sqrt(n_instruments)."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, margin=0, shift_bands=0, recorded_notes=1, foreign_sounds=10)
        check_shares(self, "recorded_share", "disturbed_share", "foreign_share")


class TimbreDecoder(nn.Module):
    """A point, a pitch, a velocity and a hold to the mean spectrum of a few segments of the note.

    Segments, not frames: the map has to know a sound's colour and how it moves; the rest is noise to it.
    """

    edges: Tensor  # int64 [n_segments + 1], frames

    def __init__(self, n_bands: int, n_frames: int, *, n_segments: int = 8, width: int = 256) -> None:
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
            nn.Linear(width, n_segments * n_bands),
        )

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor, held_frames: Tensor) -> Tensor:
        """Returns [B, n_segments, n_bands], the mean normalised levels of the segments.

        Args:
            timbre: float32 [B, 2].
            pitch: int64 [B], MIDI note number.
            velocity: int64 [B], 1..127.
            held_frames: float32 [B]; given, so that the map need not tell long notes from short ones.
        """
        octaves = (pitch.float() - 60.0) / 12.0
        waves = [octaves / 2.5, torch.sin(octaves), torch.cos(octaves), torch.sin(2 * octaves)]
        hold = held_frames.clamp(max=self.n_frames) / self.n_frames
        inputs = torch.stack([timbre[:, 0], timbre[:, 1], *waves, velocity.float() / 127.0, hold], dim=1)
        return self.layers(inputs).unflatten(1, (self.edges.shape[0] - 1, -1))

    def segments(self, levels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the target, mean levels [B, n_segments, n_bands], and 1 where a segment has any, [.., 1].

        Args:
            levels: [B, n_frames, n_bands], normalised.
            mask: [B, n_frames, 1], 1 for the frames that a note has.
        """
        sums = _prefix(levels * mask)[:, self.edges]
        counts = _prefix(mask)[:, self.edges]
        totals, lengths = sums[:, 1:] - sums[:, :-1], counts[:, 1:] - counts[:, :-1]
        return totals / lengths.clamp(min=1.0), (lengths > 0).float()


def _prefix(x: Tensor) -> Tensor:
    """Returns sums of the first 0, 1, .. F frames: [B, F, D] -> [B, F + 1, D]."""
    return nn.functional.pad(x.cumsum(dim=1), (0, 0, 1, 0))


@dataclass(frozen=True)
class TimbreBatch:
    """A batch of notes' starts, and the progress of the training."""

    levels: (
        Tensor  # float32 [B, F, n_bands], in dB: of C clean notes, then of recorded ones and foreign sounds
    )
    n_frames: Tensor  # int64 [B]
    instrument: Tensor  # int64 [B]; of foreign sounds the number of instruments
    pitch: Tensor  # int64 [C]
    velocity: Tensor  # int64 [C]
    held_frames: Tensor  # float32 [C], frames of the encoder
    progress: float  # 0..1


class TimbreModel(nn.Module):
    """The encoder with all that is needed to train it."""

    family_of: Tensor  # int64 [M]

    def __init__(self, config: TimbreTrainingConfig, sample_rate: int, families: NDArray[np.int64]) -> None:
        """Takes families, int64 [M]: the family of each instrument, counted from 0."""
        super().__init__()
        self.config = config
        n_instruments = len(families)
        self.margin = config.margin or losses.default_margin(n_instruments)
        self.encoder = TimbreEncoder(config.encoder, sample_rate)
        self.decoder = TimbreDecoder(config.encoder.n_bands, config.encoder.n_frames)
        self.instruments = losses.Prototypes(n_instruments, self.margin / 4)
        self.families = losses.Prototypes(int(families.max()) + 1, 0.25)
        self.names = losses.Names(n_instruments, config.encoder.embedding_width)
        self.adversary = losses.Adversary()
        self.register_buffer("family_of", torch.from_numpy(families), persistent=False)

    def loss(self, batch: TimbreBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the weighted sum and parts of the batch's losses.

        Clean notes alone lay out the map, on which notes are written later; the embedding is learnt from all.
        """
        config, n_clean = self.config, len(batch.pitch)
        heard = self.encoder.hear(batch.levels, batch.n_frames)
        mean, log_variance = heard.mean[:n_clean], heard.log_variance[:n_clean]
        instrument = batch.instrument[:n_clean]
        point = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        attraction, repulsion = losses.neighbours(mean, instrument, self.margin)
        family = self.family_of[instrument]
        rising = batch.progress**0.5
        weighted = {
            "reconstruction": (config.reconstruction_weight, self._reconstruction(point, batch)),
            "divergence": (config.divergence_weight, losses.divergence(mean, log_variance)),
            "outside_disc": (config.disc_weight, losses.outside_disc(mean)),
            "attraction": (config.attraction_weight * rising, attraction),
            "repulsion": (config.repulsion_weight * rising, repulsion),
            "family": (
                config.family_weight * (1.0 - batch.progress),
                nn.functional.cross_entropy(self.families(point), family),
            ),
            "instrument": (
                config.instrument_weight * batch.progress,
                nn.functional.cross_entropy(self.instruments(point), instrument),
            ),
            "name": (
                config.name_weight,
                nn.functional.cross_entropy(self.names(heard.embedding), batch.instrument),
            ),
            "adversary": (config.adversary_weight, self.adversary(mean, batch.pitch, batch.velocity)),
        }
        total = torch.stack([weight * part for weight, part in weighted.values()]).sum()
        return total, {name: part for name, (_, part) in weighted.items()}

    def _reconstruction(self, point: Tensor, batch: TimbreBatch) -> Tensor:
        levels = batch.levels[: len(point)]
        mask = frame_mask(batch.n_frames[: len(point)], levels.shape[1])
        wanted, present = self.decoder.segments(self.encoder.normalise(levels, mask), mask)
        found = self.decoder(point, batch.pitch, batch.velocity, batch.held_frames)
        return ((found - wanted).square() * present).sum() / (present.sum() * levels.shape[2])
