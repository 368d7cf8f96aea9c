"""An exponential moving average of a model's weights: what is validated, exported and shipped."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Ema:
    """A copy of `model` whose parameters follow the model's; buffers are copied as they are.

    The decay rises from 1/10 towards `decay` as (1 + n) / (10 + n) over updates n, so that the random
    initial weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow `model` after 0-based optimizer step `step`."""
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        averages = [parameter.detach() for parameter in self.model.parameters()]
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], 1.0 - decay)
        for average, value in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(value)
