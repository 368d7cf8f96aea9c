"""The encoder: features of each frame to a latent that the quantizer can code."""

from __future__ import annotations

from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.blocks import Block
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig


class Encoder(nn.Module):
    """Features [B, T, n_features] -> latents [B, T, latent_dim]."""

    def __init__(self, config: TimbrelNotesConfig, n_features: int) -> None:
        super().__init__()
        self.inlet = nn.Linear(n_features, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.encoder_kernel) for _ in range(config.n_encoder_blocks)
        )
        self.norm = nn.LayerNorm(config.width)
        self.outlet = nn.Linear(config.width, config.latent_dim)

    def forward(self, features: Tensor) -> Tensor:
        x = self.inlet(features)
        for block in self.blocks:
            x = block(x)
        return self.outlet(self.norm(x))
