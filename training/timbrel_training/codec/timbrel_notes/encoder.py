"""The encoder, and the ConvNeXt blocks that it and the decoder are made of.

After Liu et al., 2022; over audio frames after Vocos (Siuzdak, 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig


class Mixer(nn.Module):
    """The part of a ConvNeXt block behind its convolution: [B, T, C] -> [B, T, C]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.scale * hidden


class Block(nn.Module):
    """Sees `kernel` frames, as many after the present one as before: [B, T, C] -> [B, T, C]."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.mixer = Mixer(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixer(self.convolution(x.transpose(1, 2)).transpose(1, 2))


class CausalBlock(nn.Module):
    """Sees the present frame and the `kernel - 1` before it, which a stream carries as state."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.n_context = kernel - 1
        self.convolution = nn.Conv1d(width, width, kernel, groups=width)
        self.mixer = Mixer(width)

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Takes x [B, T, C] and context [B, kernel - 1, C], and returns the same shapes."""
        padded = torch.cat([context, x], dim=1)
        mixed = self.mixer(self.convolution(padded.transpose(1, 2)).transpose(1, 2))
        return x + mixed, padded[:, padded.shape[1] - self.n_context :]


class FrameEncoder(nn.Module):
    """Turns features [B, T, n_features] into latents [B, T, latent_dim] that the quantizer can code."""

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
