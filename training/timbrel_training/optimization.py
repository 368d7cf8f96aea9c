"""The learning-rate schedule, the averaged weights and the precision of a training."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

from timbrel_training.errors import ConfigError

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16)
FAST_ON_CPU = ("amx_bf16", "avx512_bf16")
"""A CPU with one of these, by torch's names, multiplies in bfloat16 faster than in float32. One with none
takes three times as long (measured on one with AVX-512 alone)."""


def learning_rate(step: int, *, n_steps: int, n_warmup: int, peak: float, final_fraction: float) -> float:
    """Rises linearly to `peak`, then falls along a cosine to `peak * final_fraction` at `n_steps`. `step` is
    0-based; the first one already has a rate above zero."""
    if step < n_warmup:
        return peak * (step + 1) / n_warmup
    progress = min(1.0, (step - n_warmup) / max(1, n_steps - n_warmup))
    return peak * (final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress)))


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
        """Follows `model` after 0-based optimizer step `step`."""
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        averages = [parameter.detach() for parameter in self.model.parameters()]
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], 1.0 - decay)
        for average, value in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(value)


def check_precision(precision: str) -> None:
    """Raises ConfigError for what is none of PRECISIONS."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision: {precision!r}, expected {AUTO}, {FLOAT32} or {BFLOAT16}")


def autocast(device: torch.device, precision: str, *, cached: bool = True) -> torch.autocast:
    """Returns the context in which losses are computed, of one of PRECISIONS; AUTO is bfloat16 where the
    device is the faster for it.

    Not `cached`: a weight is rounded each time that it is used. All threads share the cache, and each empties
    it when it is done: how gradients are summed would follow from which thread comes first.
    """
    enabled = precision == BFLOAT16 or (precision == AUTO and _is_fast_in_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=cached)


def _is_fast_in_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # newer torches
    return device.type == "cpu" and any(capabilities.get(name) for name in FAST_ON_CPU)
