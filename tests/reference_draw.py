"""The draw of a token as plainly as it can be written, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(
    logits: NDArray[Any], uniform: float, temperature: float, top_k: int, top_p: float
) -> tuple[int, float]:
    """The token drawn from logits [V], the last of them EOS's, and how far the uniform was from choosing
    another."""
    if temperature == 0:
        return int(logits.argmax()), 1.0
    weights = np.exp((logits - logits.max()).astype(np.float64))
    end = weights[-1] / weights.sum()
    if uniform < end:
        return len(logits) - 1, float(end - uniform)
    token, margin = _reference_code(logits[:-1], (uniform - end) / (1 - end), temperature, top_k, top_p)
    return token, min(margin * (1 - end), uniform - end if end > 0 else 1.0)


def _reference_code(
    logits: NDArray[Any], uniform: float, temperature: float, top_k: int, top_p: float
) -> tuple[int, float]:
    order = np.argsort(-logits, kind="stable")
    weights = np.exp((logits[order] - logits[order[0]]).astype(np.float64) / temperature)
    probability = weights / weights.sum()
    below = np.cumsum(probability) - probability
    n_kept = min(int((below < top_p).sum()), top_k, 256)
    edges = np.cumsum(probability[:n_kept])
    total, stretch = edges[-1], 1.0
    margin = min(np.abs(below - top_p).min() if top_p < 1 else 1.0, abs(uniform - total))
    if uniform >= total:  # to be drawn among those that are kept
        stretch = total / (1 - total)
        uniform = (uniform - total) * stretch
    chosen = min(int((edges <= uniform).sum()), n_kept - 1)
    return int(order[chosen]), float(min(np.abs(edges - uniform).min() / max(stretch, 1.0), margin))
