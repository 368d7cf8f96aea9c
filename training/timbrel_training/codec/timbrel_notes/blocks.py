"""ConvNeXt blocks over frames (Liu et al., 2022; over audio frames after Vocos, Siuzdak, 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mixer(nn.Module):
    """What a ConvNeXt block does behind its convolution: [B, T, C] -> [B, T, C]."""

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
        """x [B, T, C], context [B, kernel - 1, C] -> the same shapes."""
        padded = torch.cat([context, x], dim=1)
        mixed = self.mixer(self.convolution(padded.transpose(1, 2)).transpose(1, 2))
        return x + mixed, padded[:, padded.shape[1] - self.n_context :]
