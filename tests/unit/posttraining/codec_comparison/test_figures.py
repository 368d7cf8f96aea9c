"""Figures of codebooks."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel_posttraining.codec_comparison.figures import CodeUsage
from timbrel_training.tokens.table import from_notes


def test_usage_is_counted_per_codebook_and_within_notes() -> None:
    still = np.array([[5, 0], [5, 1], [5, 2], [5, 3]], np.uint16)
    other = np.array([[6, 0], [6, 1], [7, 2], [7, 3]], np.uint16)
    table = from_notes(
        [still, other],
        instrument=[0, 0],
        pitch=[60, 61],
        velocity=[100, 100],
        held_frames=[4, 4],
        split=[0, 0],
        instruments=[("Flute", "Pipe")],
        codebook_size=8,
        frame_rate=50.0,
    )
    usage = CodeUsage.of(table)
    assert usage.distinct == (3, 4)
    assert usage.change == (pytest.approx(1 / 6), 1.0)  # from note to note is no change
    entropy = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
    assert usage.perplexity == (pytest.approx(float(np.exp(entropy))), pytest.approx(4.0))
