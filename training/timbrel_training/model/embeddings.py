"""Embeddings of tokens, positions and numbers; and the output heads, which share the tokens' weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from timbrel_training.tokens.delay import CodebookLayout

SCALES = (2.0, 6.0, 12.0)
"""Standard deviations of the frequencies, in radians per unit: a third of the waves each, wide to narrow."""
MASKED_LOGIT = -1e20
"""Score of a token that a head may not choose: so low that any score added to it is lost, and finite, so that
differences of logits stay numbers."""


class FourierFeatures(nn.Module):
    """Numbers [B, n_inputs] and `n_waves` cosines of random mixtures of them: [B, n_inputs + n_waves].

    After Rahimi and Recht (2007) and Tancik et al. (2020). A plain linear map of a point x into a wide vector
    keeps little but its direction once a LayerNorm has seen it: how far out the point lies, or how large a
    single number is, is all but lost. The cosines turn distances into directions. With no waves the numbers
    pass as they are.
    """

    def __init__(self, n_inputs: int, n_waves: int) -> None:
        super().__init__()
        self.n_outputs = n_inputs + n_waves
        self.n_waves = n_waves
        if n_waves:
            scale = torch.tensor([SCALES[wave % len(SCALES)] for wave in range(n_waves)])
            self.frequencies = nn.Parameter(torch.randn(n_inputs, n_waves) * scale)
            self.phases = nn.Parameter(2 * math.pi * torch.rand(n_waves))

    def forward(self, x: Tensor) -> Tensor:
        if not self.n_waves:
            return x
        waves = math.sqrt(2.0) * torch.cos(x @ self.frequencies + self.phases)
        return torch.cat([x, waves], dim=1)


def sinusoidal_table(n_positions: int, width: int) -> Tensor:
    """Returns float32 [n_positions, width], after Vaswani et al. (2017).

    PE(p, 2i) = sin(p / 10000^(2i / width)), PE(p, 2i + 1) = cos(p / 10000^(2i / width)).
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / torch.pow(10_000.0, even / width)
    table = torch.stack([torch.sin(angle), torch.cos(angle)], dim=2).flatten(1)
    return table[:, :width].float()


class SinusoidalPositions(nn.Module):
    """A fixed table, looked up: position int64 [...] -> float32 [..., width]."""

    table: Tensor  # [n_positions, width]

    def __init__(self, n_positions: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(n_positions, width), persistent=False)

    def forward(self, position: Tensor) -> Tensor:
        return nn.functional.embedding(position, self.table)


class DigitSums(nn.Module):
    """Adds embeddings of a code's digits to its own: rows [K * V, d] -> [K * V, d].

    Codes of finite scalar quantization (Mentzer et al., 2023) are numbers whose digits mean something each:
    codes that share a digit then share what is learnt, and a code that no note has is still known. BOS and
    EOS have no digits.
    """

    digits: Tensor  # int64 [n_digits, codebook_size], the lowest digit first

    def __init__(self, layout: CodebookLayout, width: int, base: int) -> None:
        super().__init__()
        n_digits = next(n for n in range(1, 64) if base**n >= layout.codebook_size)
        powers = base ** torch.arange(n_digits)
        digits = torch.arange(layout.codebook_size) // powers[:, None] % base
        self.register_buffer("digits", digits, persistent=False)
        self.tables = nn.Parameter(0.02 * torch.randn(n_digits, layout.n_codebooks, base, width))

    def forward(self, own: Tensor) -> Tensor:
        # [K, codebook_size, d]
        summed = sum(table[:, digit] for table, digit in zip(self.tables, self.digits, strict=True))
        rows = own.unflatten(0, (self.tables.shape[1], -1))
        return (rows + nn.functional.pad(summed, (0, 0, 0, rows.shape[1] - summed.shape[1]))).flatten(0, 1)


class TokenEmbedding(nn.Module):
    """Sums the embeddings of a step's tokens: int64 [..., K] -> [..., d].

    All codebooks' tables lie in one, [K * V, d], which `OutputHeads` reads too. As in Vaswani et al. (2017) a
    looked-up row is multiplied by sqrt(d): so the rows can be small, as an output layer's should be.
    """

    offsets: Tensor  # [K], where each codebook's table starts

    def __init__(self, layout: CodebookLayout, width: int, digit_base: int = 0) -> None:
        super().__init__()
        n_rows = layout.n_codebooks * layout.vocabulary_size
        self.weight = nn.Parameter(0.02 * torch.randn(n_rows, width))
        if digit_base:
            parametrize.register_parametrization(self, "weight", DigitSums(layout, width, digit_base))
        self.scale = math.sqrt(width)
        self.register_buffer("offsets", torch.arange(0, n_rows, layout.vocabulary_size), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = nn.functional.embedding(tokens + self.offsets, self.weight)
        return rows.sum(dim=-2) * self.scale


class OutputHeads(nn.Module):
    """One head per codebook, its weights those of the codebook's embedding: [..., d] -> logits [..., K, V].

    Codebook 0 ends a note: it may say EOS but not BOS, and EOS only behind a frame that sounds: one step in a
    thousand or so would say it in a header. The others may say neither. Codes that say whether the key is
    held say what the gate says.
    """

    never: Tensor  # bool [K, V], what no step may say
    forbidden: Tensor  # bool [3, K, V], what a step of each part of a note may not say; see `part`

    def __init__(
        self,
        layout: CodebookLayout,
        lead_frames: int = 0,
        held_codes: Sequence[int] = (),
        released_codes: Sequence[int] = (),
    ) -> None:
        """See ModelConfig for the arguments."""
        super().__init__()
        self.layout = layout
        self.lead_frames = lead_frames
        self.bias = nn.Parameter(torch.zeros(layout.n_codebooks, layout.vocabulary_size))
        never = torch.zeros(layout.n_codebooks, layout.vocabulary_size, dtype=torch.bool)
        never[:, layout.bos_id] = True
        never[1:, layout.eos_id] = True
        released, held = never.clone(), never.clone()
        for codebook, n_held in enumerate(held_codes):
            if n_held:
                released[codebook, :n_held] = True
                held[codebook, n_held : layout.codebook_size] = True
        for codebook, end in enumerate(released_codes):
            if end:
                released[codebook, end : layout.codebook_size] = True
        first = held.clone()
        first[0, layout.eos_id] = True
        self.register_buffer("never", never, persistent=False)
        self.register_buffer("forbidden", torch.stack([released, held, first]), persistent=False)

    def part(self, position: Tensor, held: Tensor) -> Tensor:
        """Returns the part of a note that steps at these positions predict, int64 [...]: 2, a lead frame or
        the first behind; 1, a frame with the key held, bool [...]; 0, one after it went up."""
        return torch.where(position <= self.lead_frames, 2, held.long())

    def forward(self, x: Tensor, embedding: TokenEmbedding, position: Tensor, held: Tensor) -> Tensor:
        """Returns the float32 logits [..., K, V] of all codebooks, for steps at positions [...] with the key
        held or not, bool [...]."""
        logits = self.project(x, embedding).float()
        return logits.masked_fill(self.forbidden[self.part(position, held)], MASKED_LOGIT)

    def project(self, x: Tensor, embedding: TokenEmbedding) -> Tensor:
        """Does `forward` without its mask: one matrix product for all codebooks."""
        flat = nn.functional.linear(x, embedding.weight, self.bias.flatten())
        return flat.unflatten(-1, (self.layout.n_codebooks, self.layout.vocabulary_size))

    def one_codebook(self, x: Tensor, embedding: TokenEmbedding, codebook: int) -> Tensor:
        """Returns the float32 logits [..., V] of one codebook."""
        weight, bias = self.layer(embedding.weight, codebook)
        return nn.functional.linear(x, weight).float() + bias

    def layer(self, weight: Tensor, codebook: int) -> tuple[Tensor, Tensor]:
        """Returns the weight [V, d] and the bias [V], which masks what no step may say, that score the tokens
        of one codebook, of the weight [K * V, d] of all."""
        size = self.layout.vocabulary_size
        bias = self.bias[codebook].masked_fill(self.never[codebook], MASKED_LOGIT)
        return weight[codebook * size : (codebook + 1) * size], bias
