"""How far a decode graph of lower precision strays from the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_export.errors import ParityError

MAX_MEAN_KL = 0.05
"""Nats per token. A graph beyond it is broken, not merely less exact."""


@dataclass
class PrecisionParity:
    """Kullback-Leibler divergence of what the graph expects from what the oracle does, in nats per token."""

    total: float = 0.0
    n_tokens: int = 0

    @property
    def mean_kl(self) -> float:
        """Of all tokens compared."""
        return self.total / max(self.n_tokens, 1)

    def add(
        self,
        where: str,
        logits: NDArray[np.float32],
        tokens: NDArray[np.int64],
        oracle: NDArray[np.float32],
    ) -> None:
        """Compares one note: the graph's logits [S, K, V] with the oracle's."""
        if not np.isfinite(logits).all():
            raise ParityError(f"{where}: the graph's logits are not finite")
        wanted, found = _log_softmax(oracle), _log_softmax(logits)
        self.total += float((np.exp(wanted) * (wanted - found)).sum())
        self.n_tokens += tokens.size

    def check(self, graph: str) -> None:
        """Raises ParityError where the graph may not ship."""
        if not self.mean_kl <= MAX_MEAN_KL:
            raise ParityError(
                f"{graph}: strays from the oracle by {self.mean_kl:.3g} nats per token, "
                f"allowed are {MAX_MEAN_KL:g}"
            )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)
