"""How the next token is drawn from its logits."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_TOP_K = 256
"""Most candidates that are ever considered."""
COLDEST = 1e-4
"""Temperatures below this are replaced by it before dividing; 0 itself is handled apart."""


def sample(logits: Tensor, uniforms: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Draws one token per codebook: temperature, top-k, top-p, then the inverse cumulative distribution.

    The candidates stand in order of falling probability; the one is taken whose share of [0, 1) holds the
    uniform. So the draw needs no random generator of its own and repeats exactly.

    Args:
        logits: float32 [B, K, V].
        uniforms: float32 [B, K], in (0, 1).
        temperature: float32 [B]; 0 takes the most likely token.
        top_k: int64 [B], 1 .. MAX_TOP_K: how many of the most likely tokens are kept.
        top_p: float32 [B], in (0, 1]: kept is the smallest set of tokens whose probabilities reach it.

    Returns:
        int64 [B, K].
    """
    n_candidates = min(MAX_TOP_K, logits.shape[2])
    scores, tokens = torch.topk(logits, n_candidates, dim=2)
    rank = torch.arange(n_candidates, device=logits.device)
    kept = torch.where(temperature == 0, 1, top_k)[:, None, None]
    divisor = torch.clamp(temperature, min=COLDEST)[:, None, None]
    scores = (scores - scores[:, :, :1]) / divisor
    weights = torch.where(rank < kept, torch.exp(scores), 0.0)
    reached = torch.cumsum(weights, dim=2)
    before = reached - weights
    nucleus = before < top_p[:, None, None] * reached[:, :, -1:]
    total = torch.where(nucleus, reached, 0.0).amax(dim=2, keepdim=True)
    target = uniforms[:, :, None] * total
    passed = (reached <= target) & (reached < total)
    choice = passed.long().sum(dim=2, keepdim=True)
    return torch.gather(tokens, 2, choice)[:, :, 0]
