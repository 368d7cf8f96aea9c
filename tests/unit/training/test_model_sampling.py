"""Drawing tokens from logits, held against a plain reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference_draw import reference

from timbrel_bundle.randomness import uniforms_batch
from timbrel_training.model.embeddings import MASKED_LOGIT
from timbrel_training.model.sampling import sample

SETTINGS = [(0.6, 256, 0.95), (0.6, 1, 1.0), (0.3, 256, 0.5), (2.0, 256, 1.0)]
"""Temperatures, top-k and top-p that a note's end has nothing to do with."""


def draw(
    logits: NDArray[Any],
    uniforms: NDArray[Any],
    temperature: Any,
    top_k: Any,
    top_p: Any,
    lasts: bool = False,
) -> NDArray[Any]:
    rows = len(logits)
    return sample(
        torch.from_numpy(logits),
        torch.from_numpy(uniforms),
        torch.full((rows,), lasts),
        torch.tensor(np.broadcast_to(temperature, rows), dtype=torch.float32),
        torch.tensor(np.broadcast_to(top_k, rows), dtype=torch.int64),
        torch.tensor(np.broadcast_to(top_p, rows), dtype=torch.float32),
    ).numpy()


def without_end(logits: NDArray[Any]) -> NDArray[Any]:
    """Logits [B, K, V + 1], EOS masked."""
    return np.pad(logits, ((0, 0), (0, 0), (0, 1)), constant_values=MASKED_LOGIT)


@pytest.mark.parametrize("vocabulary", [34, 700])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(256, 1.0), (1, 1.0), (20, 1.0), (256, 0.7), (30, 0.9)])
def test_the_reference_draws_the_same(vocabulary: int, temperature: float, top_k: int, top_p: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (40, 5, vocabulary)).astype(np.float32)
    logits[:, 1:, -1] = MASKED_LOGIT
    logits[:20, 0, -1] = logits[:20, 0].max(axis=1) + 1.0  # so that some are EOS
    uniforms = rng.random((40, 5), dtype=np.float32)
    found = draw(logits, uniforms, temperature, top_k, top_p)
    compared = 0
    for row, q in np.ndindex(40, 5):
        expected, margin = reference(logits[row, q], uniforms[row, q], temperature, top_k, top_p)
        if margin > 1e-5:
            assert found[row, q] == expected
            compared += 1
    assert compared > 190
    assert 5 < (found[:, 0] == vocabulary - 1).sum() <= 20
    assert not (found[:, 1:] == vocabulary - 1).any()


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_a_rare_end_comes_as_often_as_the_model_says(temperature: float, top_k: int, top_p: float) -> None:
    """And the other tokens are drawn as if it could not come at all."""
    hazard, n = 0.05, 20_000
    codes = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    logits = np.tile(np.append(codes + np.log1p(-hazard), np.log(hazard)), (n, 2, 1)).astype(np.float32)
    logits[:, 1, -1] = MASKED_LOGIT
    uniforms = np.tile(((np.arange(n) + 0.5) / n).astype(np.float32)[:, None], (1, 2))
    found = draw(logits, uniforms, temperature, top_k, top_p)
    shares = [np.bincount(column, minlength=4) / n for column in found.T]
    assert shares[0][3] == pytest.approx(hazard, abs=1e-4)
    assert shares[0][:3] == pytest.approx((1 - hazard) * shares[1][:3], abs=1e-3)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_notes_of_a_constant_hazard_are_as_long_as_it_says(
    temperature: float, top_k: int, top_p: float
) -> None:
    """Their lengths are geometric: Kolmogorov and Smirnov's distance, at the level of one in 1,000."""
    hazard, n_notes, n_frames = 0.05, 1000, 200
    logits = np.random.default_rng(0).normal(0, 2, (n_notes * n_frames, 1, 30)).astype(np.float32)
    others = np.log(np.exp(logits[:, :, :-1]).sum(axis=2))
    logits[:, :, -1] = others + np.log(hazard / (1 - hazard))
    seeds, steps = np.divmod(np.arange(n_notes * n_frames), n_frames)
    uniforms = uniforms_batch(seeds.astype(np.uint64), steps.astype(np.uint64), 1)
    is_end = (draw(logits, uniforms, temperature, top_k, top_p) == 29).reshape(n_notes, n_frames)
    assert is_end.any(axis=1).mean() > 0.99
    lengths = is_end.argmax(axis=1)
    frames = np.arange(60)
    share = (lengths[:, None] <= frames).mean(axis=0)
    assert np.abs(share - (1 - (1 - hazard) ** (frames + 1))).max() < 1.95 / np.sqrt(n_notes)


@pytest.mark.parametrize(("hazard", "share"), [(0.24, 0.0), (0.26, 0.26), (0.5, 0.5)])
def test_where_a_note_lasts_a_rare_end_is_none(hazard: float, share: float) -> None:
    n = 20_000
    logits = np.log(np.array([[[0.7 * (1 - hazard), 0.3 * (1 - hazard), hazard]]], dtype=np.float32))
    uniforms = ((np.arange(n) + 0.5) / n).astype(np.float32)[:, None]
    found = draw(np.tile(logits, (n, 1, 1)), uniforms, 1.0, 256, 1.0, lasts=True)
    shares = np.bincount(found[:, 0], minlength=3) / n
    assert shares == pytest.approx([0.7 * (1 - share), 0.3 * (1 - share), share], abs=1e-3)
    released = draw(np.tile(logits, (n, 1, 1)), uniforms, 1.0, 256, 1.0)
    assert (released == 2).mean() == pytest.approx(hazard, abs=1e-4)


@pytest.mark.parametrize(("end", "expected"), [(1.0, 2), (-1.0, 0)])
def test_at_temperature_0_a_note_ends_where_that_is_likeliest(end: float, expected: int) -> None:
    logits = np.tile(np.array([0.0, -2.0, end], dtype=np.float32), (3, 1, 1))
    uniforms = np.array([[0.0], [0.5], [0.999]], dtype=np.float32)
    assert (draw(logits, uniforms, 0.0, 256, 1.0) == expected).all()


def test_a_certain_end_leaves_nothing_to_draw() -> None:
    logits = np.array([[[0.0, 0.0, 1e6]]], dtype=np.float32)
    for uniform in (0.0, 0.5, 1 - 2.0**-24):
        assert draw(logits, np.full((1, 1), uniform, dtype=np.float32), 0.6, 256, 0.95) == 2


def test_rows_are_sampled_by_their_own_settings() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, (4, 2, 50)).astype(np.float32)
    uniforms = np.full((4, 2), 0.999, dtype=np.float32)
    settings = {
        "temperature": [0.0, 2.0, 2.0, 2.0],
        "top_k": [256, 1, 50, 50],
        "top_p": [1.0, 1.0, 1e-6, 1.0],
    }
    found = draw(without_end(logits), uniforms, **settings)
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
    counts = np.bincount(draw(without_end(logits), uniforms, 1.0, top_k, top_p)[:, 0], minlength=4)
    expected = probability[:kept] / probability[:kept].sum()
    assert np.abs(counts[:kept] / n - expected).max() < 0.001
    assert counts[kept:].sum() == 0


def test_a_tail_beyond_all_candidates_is_drawn_among_them() -> None:
    """All tokens nearly as likely as each other: 256 of 1,000 are candidates, and each is drawn as often."""
    n = 25_600
    logits = np.tile(-1e-5 * np.arange(1000, dtype=np.float32), (n, 1, 1))
    uniforms = ((np.arange(n) + 0.5) / n).astype(np.float32)[:, None]
    counts = np.bincount(draw(without_end(logits), uniforms, 1.0, 256, 1.0)[:, 0])
    assert len(counts) == 256
    assert counts.min() >= 98 and counts.max() <= 102


def test_masked_tokens_are_never_drawn() -> None:
    logits = np.full((1, 1, 300), -1e9, dtype=np.float32)
    logits[0, 0, 7] = 0.0
    for uniform in (1e-7, 0.5, 1 - 1e-7):
        assert draw(logits, np.full((1, 1), uniform, dtype=np.float32), 2.0, 256, 1.0)[0, 0] == 7
