"""The learning rate as a function of the step alone, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def learning_rate(step: int, *, n_steps: int, n_warmup: int, peak: float, final_fraction: float) -> float:
    """Linear warm-up to `peak`, then a cosine down to `peak * final_fraction` at `n_steps`.

    Args:
        step: 0-based step about to be taken; the first one already has a rate above zero.
        n_steps: length of the whole run.
        n_warmup: steps of the warm-up.
        peak: highest rate.
        final_fraction: what is left of the peak at the end, 0..1.
    """
    if step < n_warmup:
        return peak * (step + 1) / n_warmup
    progress = min(1.0, (step - n_warmup) / max(1, n_steps - n_warmup))
    return peak * (final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress)))
