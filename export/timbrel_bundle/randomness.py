"""Random numbers by counter: a uniform is a function of (seed, step, codebook) and of nothing else.

So a note's codes do not depend on what is drawn for others, nor on where in a batch it sits. The mixing
function is splitmix64's (Steele, Lea, Flood 2014: Fast splittable pseudorandom number generators).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_SEED = 2**64 - 1

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_N_BITS = 23  # with the half added below, exact in float32: never 0 and never 1


def uniforms_batch(
    seeds: Sequence[int] | npt.NDArray[np.uint64],
    steps: Sequence[int] | npt.NDArray[np.uint64],
    n_codebooks: int,
) -> npt.NDArray[np.float32]:
    """Uniforms in (0, 1), float32 [B, n_codebooks]: row b depends on seeds[b] and steps[b] alone. Raises
    OverflowError: a seed or step is not in 0 .. 2**64 - 1."""
    with np.errstate(over="ignore"):
        state = _mix(np.asarray(seeds, dtype=np.uint64) + _GOLDEN)
        state = _mix((state ^ np.asarray(steps, dtype=np.uint64)) + _GOLDEN)
        state = _mix((state[:, None] ^ np.arange(n_codebooks, dtype=np.uint64)) + _GOLDEN)
    top = (state >> np.uint64(64 - _N_BITS)).astype(np.float32)
    return (top + np.float32(0.5)) * np.float32(2.0**-_N_BITS)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))
