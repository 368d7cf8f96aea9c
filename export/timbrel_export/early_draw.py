"""The draw of the next tokens for processors, where sorting candidates is what it costs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from timbrel_training.model.sampling import MAX_TOP_K, choose, distribution, last_candidate, past_end

N_EARLY = 16
"""Candidates that are looked at first. Of the draws of the model that ships they settle 98 in 100."""


class FirstLook(NamedTuple):
    """The result of a look at few candidates, and what a second look needs."""

    tokens: Tensor
    """int64 [B, K, 1]."""
    settled: Tensor
    """bool [B, K, 1]: a look at more candidates would find the same."""
    probability: Tensor
    """[B, K, V - 1], without EOS."""
    uniform: Tensor
    """[B, K, 1]."""
    last: Tensor
    """int64 [B, 1, 1]."""
    top_p: Tensor
    """[B, 1, 1]."""


def sample_early(logits: Tensor, uniforms: Tensor, lasts: Tensor, *sampling: Tensor) -> Tensor:
    """Draws what `timbrel_training.model.sampling.sample` draws, and takes the same.

    It looks for each token among the likeliest few, and among MAX_TOP_K where that does not settle it. What a
    row draws does not depend on how many others have to be looked for again.
    """
    first = look_early(logits, uniforms, lasts, *sampling)
    if torch.compiler.is_exporting():
        return torch.cond(first.settled.all(), _keep, look_again, tuple(first))[:, :, 0]
    return (first.tokens if bool(first.settled.all()) else look_again(*first))[:, :, 0]


def look_early(
    logits: Tensor, uniforms: Tensor, lasts: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
) -> FirstLook:
    """Draws EOS, or among the likeliest few; the arguments are those of `sample`."""
    uniform, is_end = past_end(logits, uniforms, lasts, temperature)
    probability = distribution(logits, temperature)
    given = (uniform, last_candidate(temperature, top_k), top_p[:, None, None])
    tokens, settled = choose(probability, *given, N_EARLY)
    tokens = torch.where(is_end, logits.shape[2] - 1, tokens)  # settled: 0 falls to the first candidate
    return FirstLook(tokens, settled, probability, *given)


def look_again(
    tokens: Tensor, settled: Tensor, probability: Tensor, uniform: Tensor, last: Tensor, top_p: Tensor
) -> Tensor:
    """The tokens [B, K, 1] of a first look, with those that are not settled drawn anew."""
    row, codebook = torch.nonzero(~settled[:, :, 0], as_tuple=True)
    given = (probability[row, codebook], uniform[row, codebook], last[row, 0], top_p[row, 0])
    again, _ = choose(*given, MAX_TOP_K)
    return tokens.index_put((row, codebook), again)


def _keep(tokens: Tensor, *_: Tensor) -> Tensor:
    return tokens.clone()  # what torch.cond returns may not be what it was given
