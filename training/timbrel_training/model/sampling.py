"""Draws the next token from its logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_TOP_K = 256
"""Most candidates that are ever considered."""
COLDEST = 1e-4
"""Temperatures below this are replaced by it before dividing; 0 itself is handled apart."""
SHARPEST = 2.0**30
"""Logits times this differ by so much, if they do, that a softmax gives the largest of them everything."""
BELOW_ONE = 1.0 - 2.0**-24
"""The largest float32 below 1."""
RAREST_END = 0.25
"""Where a note rarely ends, a frame's probability of EOS counts from here on. With the key held, that of a
sound that lasts is mostly below 0.01, but came to 0.11 in audible frames of struck notes, and would end a
note that is held for minutes. Soon after the release one note in 25 broke off before it had faded. A sound
that has died may go on: nobody hears it."""
SOON_FRAMES = 8
"""A note rarely ends while its key is held and for so many frames, 0.2 s, behind. Later ends are spread over
more frames, none of which may come to RAREST_END."""


@dataclass(frozen=True)
class Sampling:
    """The settings that a note's tokens are drawn with: `sample`'s parameters, in its order."""

    temperature: float = 1.0
    """The softmax's temperature; 0 takes the most likely token."""
    top_k: int = MAX_TOP_K
    """The most likely tokens kept, 1 .. MAX_TOP_K."""
    top_p: float = 1.0
    """The probability, in (0, 1], that the tokens kept have to reach together."""

    def rows(self, n_rows: int, device: torch.device | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns these settings for each of `n_rows` notes, as `sample` takes them after the uniforms."""
        return (
            torch.full((n_rows,), self.temperature, device=device),
            torch.full((n_rows,), self.top_k, device=device),
            torch.full((n_rows,), self.top_p, device=device),
        )


GREEDY = Sampling(temperature=0.0)
"""The settings that always take the most likely token."""


def sample(
    logits: Tensor, uniforms: Tensor, lasts: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """Draws one token per codebook: temperature, then top-k and top-p, both of the whole distribution.

    Whether codebook 0 says EOS is drawn first, by the very probability that the model gives it: of what is as
    rare in each frame as a note's end, temperature and top-p would leave nothing, and notes would not end.
    Where the note rarely ends, less than RAREST_END is none.
    What remains of the uniform draws one of the other tokens, as the settings ask. Only temperature 0 takes
    the most likely token of all, EOS or not.

    The draw needs no random generator of its own and repeats exactly; see `choose`.

    Args:
        logits: float32 [B, K, V]; the last token is EOS, masked for all codebooks but 0.
        uniforms: float32 [B, K], in [0, 1).
        lasts: bool [B], whether the note rarely ends here; see `TransformerDecoder.rarely_ends`.
        temperature: float32 [B]; 0 takes the most likely token.
        top_k: int64 [B], 1 .. MAX_TOP_K: how many of the most likely tokens are kept.
        top_p: float32 [B], in (0, 1]: kept is the smallest set of tokens whose probabilities reach it.

    Returns:
        int64 [B, K].
    """
    uniform, is_end = past_end(logits, uniforms, lasts, temperature)
    probability = distribution(logits, temperature)
    last = last_candidate(temperature, top_k)
    tokens, _ = choose(probability, uniform, last, top_p[:, None, None], MAX_TOP_K)
    return torch.where(is_end, logits.shape[2] - 1, tokens)[:, :, 0]


def past_end(logits: Tensor, uniforms: Tensor, lasts: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Draws whether to say EOS, whose share is the lowest of codebook 0's [0, 1).

    At temperature 0 the share is all of it or nothing.

    Args:
        logits: [B, K, V].
        uniforms: [B, K].
        lasts: bool [B].
        temperature: [B].

    Returns:
        what the shares leave of the uniforms, stretched to [0, 1) to draw another token with, and 0 where EOS
        is drawn: [B, K, 1]; and whether it is: bool [B, K, 1].
    """
    sharpness = torch.where(temperature == 0, SHARPEST, 1.0)[:, None, None]
    is_first = torch.arange(logits.shape[1], device=logits.device)[:, None] == 0
    least = torch.where(lasts, RAREST_END, 0.0)[:, None, None]
    share = torch.softmax(logits[:, :1] * sharpness, dim=2)[:, :, -1:]
    share = torch.where(share < least, 0.0, share) * is_first
    excess = uniforms[:, :, None] - share
    return torch.clamp(excess / (1 - share), 0.0, BELOW_ONE), excess < 0


def distribution(logits: Tensor, temperature: Tensor) -> Tensor:
    """Returns probabilities [B, K, V - 1] of all tokens but EOS at temperature [B]."""
    return torch.softmax(logits[:, :, :-1] / torch.clamp(temperature, min=COLDEST)[:, None, None], dim=2)


def last_candidate(temperature: Tensor, top_k: Tensor) -> Tensor:
    """Returns int64 [B, 1, 1]: the last rank that top-k [B] allows; the first, at temperature 0."""
    return torch.where(temperature == 0, 0, top_k - 1)[:, None, None]


def choose(
    probability: Tensor, uniform: Tensor, last: Tensor, top_p: Tensor, n_candidates: int
) -> tuple[Tensor, Tensor]:
    """Draws from as many of the likeliest tokens, and says where a look at more might draw another.

    The candidates stand in order of falling probability; the one is taken whose share of [0, 1) holds the
    uniform. A uniform that falls to a token that is not kept is stretched over those that are: rejection
    sampling, but with one uniform. So where the uniform falls to an early candidate, neither what is kept nor
    its sum needs to be known, and a few candidates settle nearly every draw. The idea is that of FlashInfer's
    sampling without sorting (Ye et al., 2025), and so is applying top-k and top-p jointly.

    Args:
        probability: [..., V], its sum 1.
        uniform: [..., 1], in [0, 1).
        last: int64 [..., 1], the last rank that top-k allows.
        top_p: [..., 1].
        n_candidates: how many of the likeliest tokens to look at.

    Returns:
        tokens int64 [..., 1]; and bool [..., 1]: whether any larger number of candidates draws the same.
    """
    n_candidates = min(n_candidates, probability.shape[-1])
    candidates, tokens = torch.topk(probability, n_candidates, dim=-1)
    reached = torch.cumsum(candidates, dim=-1)
    last = torch.minimum(_count(reached < top_p), last)
    seen = torch.clamp(last, max=n_candidates - 1)
    total = torch.gather(reached, -1, seen)
    kept = uniform < total
    target = torch.where(kept, uniform, (uniform - total) / (1 - total) * total)
    choice = torch.minimum(_count(reached <= target), seen)
    return torch.gather(tokens, -1, choice), kept | (last < n_candidates)


def _count(matching: Tensor) -> Tensor:
    return matching.long().sum(dim=-1, keepdim=True)
