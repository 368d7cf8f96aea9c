"""What steps read, other from step to step: not every draw takes as long as every other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

N_STEPS = 128
"""Steps until the same come again."""


@dataclass(frozen=True)
class StepInput:
    """Of one step, as a host holds it."""

    tokens: list[list[int]]
    """[B, K]."""
    uniforms: npt.NDArray[np.float32]
    """[B, K], known as soon as the note is."""


def step_inputs(n_rows: int, n_codebooks: int, codebook_size: int) -> Iterator[StepInput]:
    """Without end, and the same for whoever asks."""
    random = np.random.default_rng(0)
    shape = (n_rows, n_codebooks)
    return itertools.cycle(
        [
            StepInput(
                random.integers(0, codebook_size, shape).tolist(), random.random(shape, dtype=np.float32)
            )
            for _ in range(N_STEPS)
        ]
    )
