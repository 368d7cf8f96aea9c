"""What is to be played, as a sequence of three vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.model.config import N_CONDITION_POSITIONS, N_PITCHES, ModelConfig
from timbrel_training.model.features import FourierFeatures
from timbrel_training.model.layers import EncoderLayer
from timbrel_training.model.positions import LearnedPositions

MAX_VELOCITY = 127.0


class ConditionEncoder(nn.Module):
    """Timbre, pitch and velocity, one position each, then layers that let them see each other.

    Velocity is a continuous input: an embedding would leave velocities untrained that no note has. Before a
    decoder-only model the vectors are not normalised: they enter its residual stream, whose layers do that.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.timbre_features = FourierFeatures(2, config.n_timbre_waves)
        self.timbre = nn.Linear(self.timbre_features.n_outputs, config.d_model)
        self.pitch = nn.Embedding(N_PITCHES, config.d_model)
        self.velocity_features = FourierFeatures(1, config.n_velocity_waves)
        self.velocity = nn.Linear(self.velocity_features.n_outputs, config.d_model)
        self.positions = LearnedPositions(N_CONDITION_POSITIONS, config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        normalises = config.norm == "pre" and config.conditioning == "cross"
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if normalises else nn.Identity()

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Memory [B, 3, d] of timbre [B, 2] (unit disc), pitch int64 [B] and velocity float32 [B] (MIDI)."""
        place = self.timbre(self.timbre_features(timbre))
        loudness = self.velocity(self.velocity_features((velocity / MAX_VELOCITY)[:, None]))
        x = torch.stack([place, self.pitch(pitch), loudness], dim=1)
        x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
