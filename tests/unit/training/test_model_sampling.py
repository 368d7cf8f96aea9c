"""Drawing tokens from logits, held against a plain reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference_draw import reference

from timbrel_training.model.sampling import sample


def draw(
    logits: NDArray[Any], uniforms: NDArray[Any], temperature: Any, top_k: Any, top_p: Any
) -> NDArray[Any]:
    rows = len(logits)
    return sample(
        torch.from_numpy(logits),
        torch.from_numpy(uniforms),
        torch.tensor(np.broadcast_to(temperature, rows), dtype=torch.float32),
        torch.tensor(np.broadcast_to(top_k, rows), dtype=torch.int64),
        torch.tensor(np.broadcast_to(top_p, rows), dtype=torch.float32),
    ).numpy()


@pytest.mark.parametrize("vocabulary", [34, 700])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(256, 1.0), (1, 1.0), (20, 1.0), (256, 0.7), (30, 0.9)])
def test_the_reference_draws_the_same(vocabulary: int, temperature: float, top_k: int, top_p: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (40, 5, vocabulary)).astype(np.float32)
    uniforms = rng.random((40, 5), dtype=np.float32)
    found = draw(logits, uniforms, temperature, top_k, top_p)
    compared = 0
    for row, q in np.ndindex(40, 5):
        expected, margin = reference(logits[row, q], uniforms[row, q], temperature, top_k, top_p)
        if margin > 1e-5:
            assert found[row, q] == expected
            compared += 1
    assert compared > 190


def test_rows_are_sampled_by_their_own_settings() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, (4, 2, 50)).astype(np.float32)
    uniforms = np.full((4, 2), 0.999, dtype=np.float32)
    settings = {
        "temperature": [0.0, 2.0, 2.0, 2.0],
        "top_k": [256, 1, 50, 50],
        "top_p": [1.0, 1.0, 1e-6, 1.0],
    }
    found = draw(logits, uniforms, **settings)
    best = logits.argmax(axis=2)
    assert (found[:3] == best[:3]).all()
    assert (found[3] != best[3]).all()


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [(256, 1.0, 4), (256, 0.5, 1), (256, 0.501, 2), (256, 0.9, 3), (2, 1.0, 2), (2, 0.9, 2), (3, 0.5, 1)],
)
def test_the_draws_follow_the_distribution(top_k: int, top_p: float, kept: int) -> None:
    """Of those kept, each as often as its share of them."""
    probability = np.array([0.5, 0.3, 0.15, 0.05])
    n = 20_000
    logits = np.tile(np.log(probability).astype(np.float32), (n, 1, 1))
    uniforms = ((np.arange(n) + 0.5) / n).astype(np.float32)[:, None]
    counts = np.bincount(draw(logits, uniforms, 1.0, top_k, top_p)[:, 0], minlength=4)
    expected = probability[:kept] / probability[:kept].sum()
    assert np.abs(counts[:kept] / n - expected).max() < 0.001
    assert counts[kept:].sum() == 0


def test_a_tail_beyond_all_candidates_is_drawn_among_them() -> None:
    """All tokens nearly as likely as each other: 256 of 1,000 are candidates, and each is drawn as often."""
    n = 25_600
    logits = np.tile(-1e-5 * np.arange(1000, dtype=np.float32), (n, 1, 1))
    uniforms = ((np.arange(n) + 0.5) / n).astype(np.float32)[:, None]
    counts = np.bincount(draw(logits, uniforms, 1.0, 256, 1.0)[:, 0])
    assert len(counts) == 256
    assert counts.min() >= 98 and counts.max() <= 102


def test_masked_tokens_are_never_drawn() -> None:
    logits = np.full((1, 1, 300), -1e9, dtype=np.float32)
    logits[0, 0, 7] = 0.0
    for uniform in (1e-7, 0.5, 1 - 1e-7):
        assert draw(logits, np.full((1, 1), uniform, dtype=np.float32), 2.0, 256, 1.0)[0, 0] == 7
