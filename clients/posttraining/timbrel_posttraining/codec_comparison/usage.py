"""How a codec uses its codebooks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.tokens.table import TokenTable


@dataclass(frozen=True)
class CodeUsage:
    """Figures of each codebook, in their order."""

    distinct: tuple[int, ...]
    """Codes that occur at all."""
    perplexity: tuple[float, ...]
    """Exponential of the entropy: as many codes, used evenly, would be as hard to guess."""
    change: tuple[float, ...]
    """Share of frames whose code is not the frame's before; on a steady tone it should be 0."""

    @classmethod
    def of(cls, table: TokenTable) -> CodeUsage:
        """Over all frames of all notes."""
        counts = [
            np.bincount(table.codes[:, q], minlength=table.codebook_size) for q in range(table.n_codebooks)
        ]
        within = np.ones(len(table.codes), bool)
        within[table.offsets[:-1]] = False  # a note's first frame follows nothing
        changed = table.codes[1:] != table.codes[:-1]
        return cls(
            distinct=tuple(int((count > 0).sum()) for count in counts),
            perplexity=tuple(_perplexity(count) for count in counts),
            change=tuple(float(share) for share in changed[within[1:]].mean(axis=0)),
        )


def _perplexity(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
