"""The prior of a header's numbers, given the instrument, the pitch and the velocity.

A model that writes headers knows little more than that. Where the autoencoder pays for every nat by which its
numbers surprise this prior, it leaves out what is chance, and says the rest in numbers that follow pitch and
velocity smoothly (rate-distortion training with a conditional prior, after Ballé et al., 2018).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysis import N_PITCH_FEATURES, pitch_features
from timbrel_training.codec.timbrel_notes.header import LEVELS

EMBEDDING, WIDTH, DROPOUT = 24, 256, 0.1
VELOCITY_WAVES = (1, 2, 3, 4, 6)
"""Half cosines over the range of velocities."""
HALF_STEP = 1 / (LEVELS - 1)
LEAST_PROBABILITY = 1e-5


class HeaderPrior(nn.Module):
    """A logistic distribution of each number; used in training alone."""

    def __init__(self, n_instruments: int, n_numbers: int) -> None:
        super().__init__()
        self.instruments = nn.Embedding(n_instruments, EMBEDDING)
        n_inputs = EMBEDDING + N_PITCH_FEATURES + 1 + len(VELOCITY_WAVES)
        self.network = nn.Sequential(
            nn.Linear(n_inputs, WIDTH), nn.GELU(), nn.Dropout(DROPOUT),
            nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(DROPOUT),
            nn.Linear(WIDTH, 2 * n_numbers),
        )  # fmt: skip

    def forward(self, instrument: Tensor, midi: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means and log scales [B, n_numbers] of instruments int64 [B], pitches, velocities [B]."""
        share = velocity[:, None] / 127
        waves = [torch.cos(math.pi * wave * share) for wave in VELOCITY_WAVES]
        known = [self.instruments(instrument), pitch_features(midi), share, *waves]
        mean, log_scale = self.network(torch.cat(known, dim=1)).float().chunk(2, dim=1)
        return mean, torch.clamp(log_scale - 1.0, -6.0, 2.0)

    def nats(self, numbers: Tensor, instrument: Tensor, midi: Tensor, velocity: Tensor) -> Tensor:
        """Returns how many nats [B] the numbers [B, n_numbers] of notes are, each known to a step."""
        mean, log_scale = self(instrument, midi, velocity)
        narrowness = torch.exp(-log_scale)
        above = torch.sigmoid((numbers + HALF_STEP - mean) * narrowness)
        below = torch.sigmoid((numbers - HALF_STEP - mean) * narrowness)
        # The outermost steps reach as far as the distribution does.
        above = torch.where(numbers > 1 - HALF_STEP / 2, 1.0, above)
        below = torch.where(numbers < HALF_STEP / 2 - 1, 0.0, below)
        return -torch.log(torch.clamp(above - below, min=LEAST_PROBABILITY)).sum(dim=1)
