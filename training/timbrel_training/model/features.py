"""Features of a few continuous numbers, such that a network can tell near values apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SCALES = (2.0, 6.0)
"""Standard deviations of the frequencies, in radians per unit: half the waves are wide, half are narrow."""


class FourierFeatures(nn.Module):
    """Numbers [B, n_inputs] and `n_waves` cosines of random mixtures of them: [B, n_inputs + n_waves].

    After Rahimi and Recht (2007) and Tancik et al. (2020). A plain linear map of a point x into a wide vector
    keeps little but its direction once a LayerNorm has seen it: how far out the point lies, or how large a
    single number is, is all but lost. The cosines turn distances into directions. With no waves the numbers
    pass as they are.
    """

    def __init__(self, n_inputs: int, n_waves: int) -> None:
        super().__init__()
        self.n_outputs = n_inputs + n_waves
        self.n_waves = n_waves
        if n_waves:
            scale = torch.tensor([SCALES[wave % len(SCALES)] for wave in range(n_waves)])
            self.frequencies = nn.Parameter(torch.randn(n_inputs, n_waves) * scale)
            self.phases = nn.Parameter(2 * math.pi * torch.rand(n_waves))

    def forward(self, x: Tensor) -> Tensor:
        if not self.n_waves:
            return x
        waves = math.sqrt(2.0) * torch.cos(x @ self.frequencies + self.phases)
        return torch.cat([x, waves], dim=1)
