"""Lengths that are quick to transform."""

from __future__ import annotations

_FIRST = (4, 5, 6, 7)
"""Times a power of two: no prime factor above 7, and never a quarter more than was asked for."""


def fast_length(n_samples: int) -> int:
    """The smallest length from `n_samples` up whose FFT is quick; a large prime's takes ten times as long."""
    if n_samples <= _FIRST[0]:
        return max(1, n_samples)
    octave = 1 << max(0, (n_samples - 1).bit_length() - 3)
    return next(first * octave for first in (*_FIRST, 8) if first * octave >= n_samples)
