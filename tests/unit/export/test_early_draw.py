"""The draw that looks at few candidates first takes what the draw among all takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from timbrel_export.early_draw import N_EARLY, sample_early
from timbrel_training.model.embeddings import MASKED_LOGIT
from timbrel_training.model.sampling import MAX_TOP_K, choose, distribution, sample


def make_logits(certainty: float, vocabulary: int = 1026) -> Tensor:
    """[200, 3, V]: the larger the certainty, the fewer tokens share most of the probability. Codebook 0 ends
    in every fourth row as likely as not, the others never."""
    generator = torch.Generator().manual_seed(0)
    logits = certainty * torch.randn(200, 3, vocabulary, generator=generator)
    logits[::4, 0, -1] = logits[::4, 0, :-1].logsumexp(dim=1)
    logits[:, 1:, -1] = MASKED_LOGIT
    return logits


def make_uniforms() -> Tensor:
    uniforms = torch.rand(200, 3, generator=torch.Generator().manual_seed(1))
    uniforms[0], uniforms[1] = 0.0, torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    return uniforms


def settled_share(certainty: float, top_k: int, top_p: float) -> float:
    """The share of the draws that the early candidates settle."""
    probability = distribution(make_logits(certainty), torch.ones(200))
    last, nucleus = torch.full((200, 1, 1), top_k - 1), torch.full((200, 1, 1), top_p)
    _, settled = choose(probability, make_uniforms()[:, :, None], last, nucleus, N_EARLY)
    return float(settled.float().mean())


@pytest.mark.parametrize("vocabulary", [10, 34, 1026])
@pytest.mark.parametrize("certainty", [0.3, 1.0, 3.0, 6.0, 30.0])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_it_draws_the_same(vocabulary: int, certainty: float, temperature: float) -> None:
    logits, uniforms = make_logits(certainty, vocabulary), make_uniforms()
    generator = torch.Generator().manual_seed(2)
    top_k = torch.randint(1, MAX_TOP_K + 1, (200,), generator=generator)
    top_k[:40] = torch.arange(1, 41)
    top_p = torch.rand(200, generator=generator).clamp(min=1e-3)
    top_p[::3] = 1.0
    lasts = torch.arange(200) % 2 == 0
    given = (logits, uniforms, lasts, torch.full((200,), temperature), top_k, top_p)
    drawn = sample(*given)
    assert torch.equal(sample_early(*given), drawn)
    assert 10 < (drawn[::4, 0] == vocabulary - 1).sum() <= 50


def test_of_certain_logits_nearly_all_draws_are_early() -> None:
    assert settled_share(certainty=6.0, top_k=MAX_TOP_K, top_p=0.95) > 0.97


def test_of_flat_logits_nearly_none_are() -> None:
    """So the cases above meet both kinds."""
    assert settled_share(certainty=0.1, top_k=MAX_TOP_K, top_p=0.95) < 0.05


def test_few_kept_tokens_are_always_settled_early() -> None:
    assert settled_share(certainty=0.1, top_k=N_EARLY, top_p=0.95) == 1.0
    assert settled_share(certainty=0.1, top_k=N_EARLY + 1, top_p=0.95) < 0.05
