"""Mel-spaced bands: triangles that gather spectra, and interpolation that spreads them again."""

from __future__ import annotations

import torch
from torch import Tensor


def mel(frequency: Tensor) -> Tensor:
    """Mel of Hz, after O'Shaughnessy (1987): about linear below 700 Hz, logarithmic above."""
    return 2595.0 * torch.log10(1.0 + frequency / 700.0)


def hertz(mels: Tensor) -> Tensor:
    """Hz of mel."""
    return 700.0 * (torch.pow(10.0, mels / 2595.0) - 1.0)


def band_position(frequency: Tensor, n_bands: int, top: float) -> Tensor:
    """Where a frequency in Hz lies among bands centred evenly in mel from 0 Hz to `top`: 0 .. n_bands - 1."""
    scale = (n_bands - 1) / float(mel(torch.tensor(top)))
    return torch.clamp(mel(frequency) * scale, 0.0, n_bands - 1.0)


def spread_matrix(n_bands: int, n_bins: int, sample_rate: int) -> Tensor:
    """[n_bands, n_bins]: linear interpolation of band values onto DFT bins from 0 to Nyquist."""
    nyquist = sample_rate / 2
    position = band_position(torch.linspace(0.0, nyquist, n_bins), n_bands, nyquist)
    return torch.clamp(1.0 - (position[None, :] - torch.arange(n_bands)[:, None]).abs(), min=0.0)


def gather_matrix(n_bands: int, n_bins: int, sample_rate: int, lowest: float = 20.0) -> Tensor:
    """[n_bins, n_bands]: triangular mel filters whose weights sum to 1; no band is empty."""
    nyquist = sample_rate / 2
    edges = torch.linspace(float(mel(torch.tensor(lowest))), float(mel(torch.tensor(nyquist))), n_bands + 2)
    centres = hertz(edges)
    step = nyquist / (n_bins - 1)
    left = torch.minimum(centres[:-2], centres[1:-1] - step)
    right = torch.maximum(centres[2:], centres[1:-1] + step)
    bins = torch.linspace(0.0, nyquist, n_bins)[:, None]
    rising = (bins - left) / (centres[1:-1] - left)
    falling = (right - bins) / (right - centres[1:-1])
    weights = torch.clamp(torch.minimum(rising, falling), min=0.0)
    return weights / weights.sum(dim=0, keepdim=True)
