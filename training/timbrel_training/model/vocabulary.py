"""Tokens to vectors, and vectors to the scores of tokens, by the same weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from timbrel_training.tokens.layout import TokenLayout

MASKED_LOGIT = -1e9
"""Score of a token that a head may not choose: finite, so that differences of logits stay numbers."""


class TokenEmbedding(nn.Module):
    """Sums the embeddings of a step's tokens: int64 [..., K] -> [..., d].

    All codebooks' tables lie in one, [K * V, d], which `OutputHeads` reads too. As in Vaswani et al. (2017) a
    looked-up row is multiplied by sqrt(d): so the rows can be small, as an output layer's should be.
    """

    offsets: Tensor  # [K], where each codebook's table starts

    def __init__(self, layout: TokenLayout, width: int) -> None:
        super().__init__()
        n_rows = layout.n_codebooks * layout.vocabulary_size
        self.weight = nn.Parameter(0.02 * torch.randn(n_rows, width))
        self.scale = math.sqrt(width)
        self.register_buffer("offsets", torch.arange(0, n_rows, layout.vocabulary_size), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = nn.functional.embedding(tokens + self.offsets, self.weight)
        return rows.sum(dim=-2) * self.scale


class OutputHeads(nn.Module):
    """One head per codebook, its weights those of the codebook's embedding: [..., d] -> logits [..., K, V].

    Codebook 0 ends a note: it may say EOS but not BOS. The others may say neither.
    """

    forbidden: Tensor  # bool [K, V]

    def __init__(self, layout: TokenLayout) -> None:
        super().__init__()
        self.layout = layout
        self.bias = nn.Parameter(torch.zeros(layout.n_codebooks, layout.vocabulary_size))
        forbidden = torch.zeros(layout.n_codebooks, layout.vocabulary_size, dtype=torch.bool)
        forbidden[:, layout.bos_id] = True
        forbidden[1:, layout.eos_id] = True
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, x: Tensor, embedding: TokenEmbedding) -> Tensor:
        """float32 logits [..., K, V] of all codebooks."""
        logits = self.project(x, embedding).float()
        return logits.masked_fill(self.forbidden, MASKED_LOGIT)

    def project(self, x: Tensor, embedding: TokenEmbedding) -> Tensor:
        """`forward` before the mask: one matrix product for all codebooks."""
        flat = nn.functional.linear(x, embedding.weight, self.bias.flatten())
        return flat.unflatten(-1, (self.layout.n_codebooks, self.layout.vocabulary_size))

    def one_codebook(self, x: Tensor, embedding: TokenEmbedding, codebook: int) -> Tensor:
        """float32 logits [..., V] of one codebook."""
        size = self.layout.vocabulary_size
        weight = embedding.weight[codebook * size : (codebook + 1) * size]
        bias = self.bias[codebook].masked_fill(self.forbidden[codebook], MASKED_LOGIT)
        return nn.functional.linear(x, weight).float() + bias
