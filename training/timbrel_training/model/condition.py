"""What is to be played, as the encoder's sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.model.config import N_CONDITION_POSITIONS, N_PITCHES, ModelConfig
from timbrel_training.model.layers import EncoderLayer
from timbrel_training.model.positions import LearnedPositions

MAX_VELOCITY = 127.0


class ConditionEncoder(nn.Module):
    """Timbre, pitch and velocity, one position each, then layers that let them see each other.

    Velocity is a continuous input: an embedding would leave velocities untrained that no note has.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.timbre = nn.Linear(2, config.d_model)
        self.pitch = nn.Embedding(N_PITCHES, config.d_model)
        self.velocity = nn.Linear(1, config.d_model)
        self.positions = LearnedPositions(N_CONDITION_POSITIONS, config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.norm = (
            nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm == "pre" else nn.Identity()
        )

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Memory [B, 3, d] of timbre [B, 2] (unit disc), pitch int64 [B] and velocity float32 [B] (MIDI)."""
        loudness = self.velocity((velocity / MAX_VELOCITY)[:, None])
        x = torch.stack([self.timbre(timbre), self.pitch(pitch), loudness], dim=1)
        x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
