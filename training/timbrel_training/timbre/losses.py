"""The losses that shape the map. They follow pGESAM, except where a docstring says otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

SHARPNESS = 16.0
"""A cosine that is larger by the inverse of this makes an instrument e times as likely, in training."""
PRIOR_DEVIATION = 0.5
"""The KL term's Gaussian has this deviation per coordinate: that of points all over the unit disc."""


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Returns the mean KL of N(mean, variance), [B, 2] each, from N(0, PRIOR_DEVIATION^2)."""
    prior = PRIOR_DEVIATION**2
    ratio = log_variance.exp() / prior
    return 0.5 * (ratio + mean.square() / prior - 1.0 - ratio.log()).sum(dim=1).mean()


def outside_disc(mean: Tensor) -> Tensor:
    """Returns max(|mean| - 1, 0), averaged: points [B, 2] belong into the unit disc."""
    return (_length(mean) - 1.0).clamp(min=0.0).mean()


def neighbours(mean: Tensor, instrument: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Returns attraction d^2 within an instrument and repulsion max(margin - d, 0)^2 between instruments.

    Args:
        mean: float32 [B, 2].
        instrument: int64 [B].
        margin: distance from which on two instruments leave each other alone.

    Returns:
        Both, each averaged over its own kind of pairs.
    """
    distance = _length(mean[:, None] - mean[None, :])  # [B, B]
    same = instrument[:, None] == instrument[None, :]
    itself = torch.eye(len(instrument), dtype=torch.bool, device=mean.device)
    pairs, strangers = same & ~itself, ~same
    attraction = (distance.square() * pairs).sum() / pairs.sum().clamp(min=1)
    repulsion = ((margin - distance).clamp(min=0.0).square() * strangers).sum() / strangers.sum().clamp(min=1)
    return attraction, repulsion


def default_margin(n_instruments: int) -> float:
    """Returns how far apart instruments are pushed: as far as the disc has room (0.25 fits some 70)."""
    return 1.6 / max(n_instruments, 1) ** 0.5


class Prototypes(nn.Module):
    """Classifies points by distance to one learned point per class, so that classes become round clusters.

    pGESAM uses a linear layer; that one would be content with wedges.
    """

    def __init__(self, n_classes: int, deviation: float) -> None:
        super().__init__()
        self.points = nn.Parameter(0.3 * torch.randn(n_classes, 2))
        self.deviation = deviation

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits [B, n_classes] of points [B, 2]: those of equal Gaussians around the prototypes."""
        squares = (x[:, None] - self.points[None]).square().sum(dim=2)
        return -0.5 * squares / self.deviation**2


class Names(nn.Module):
    """Classifies embeddings by their cosine with a direction per instrument, or as none of them."""

    def __init__(self, n_instruments: int, width: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(n_instruments, width))
        self.nearness = nn.Parameter(torch.tensor(0.5))
        """The cosine below which a sound is none of them."""

    def forward(self, embedding: Tensor) -> Tensor:
        """Returns logits [B, n_instruments + 1] of embeddings [B, width]; the last one is none."""
        cosines = embedding @ nn.functional.normalize(self.directions, dim=1).T
        return SHARPNESS * torch.cat([cosines, self.nearness.expand(len(cosines), 1)], dim=1)


class GradientReversal(torch.autograd.Function):
    """Passes x forwards, and minus its gradient backwards (Ganin et al., 2016)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class Adversary(nn.Module):
    """Tries to read pitch and velocity from points; the reversed gradient has the encoder hide them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2)
        )

    def forward(self, mean: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns the squared error of pitch (in 2 octaves) and velocity (in 127ths), from points [B, 2]."""
        found = self.layers(GradientReversal.apply(mean))
        wanted = torch.stack([(pitch.float() - 60.0) / 24.0, velocity.float() / 127.0 - 0.5], dim=1)
        return (found - wanted).square().mean()


def _length(x: Tensor) -> Tensor:
    """Returns the Euclidean length of [..., 2], with a gradient at 0 too."""
    return (x.square().sum(dim=-1) + 1e-12).sqrt()
