"""Mel bands, pitches as networks read them, and how a note's fundamental is measured around its pitch."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

N_PITCH_FEATURES = 11
WINDOW = 4096
TRANSFORM = 8192
REACH, STEP = 0.72, 0.06
"""Semitones: candidates lie as far around the pitch, so far apart."""
N_HARMONICS = 12
"""Harmonics that a candidate is judged by."""


def mel(frequency: Tensor) -> Tensor:
    """Returns the mel of Hz, after O'Shaughnessy (1987): about linear below 700 Hz, logarithmic above."""
    return 2595.0 * torch.log10(1.0 + frequency / 700.0)


def hertz(mels: Tensor) -> Tensor:
    """Returns the Hz of mel."""
    return 700.0 * (torch.pow(10.0, mels / 2595.0) - 1.0)


def spread_matrix(n_bands: int, n_bins: int, sample_rate: int) -> Tensor:
    """Returns [n_bands, n_bins], which interpolates the values of bands that lie evenly in mel linearly onto
    DFT bins, both from 0 to Nyquist."""
    nyquist = sample_rate / 2
    scale = (n_bands - 1) / float(mel(torch.tensor(nyquist)))
    position = torch.clamp(mel(torch.linspace(0.0, nyquist, n_bins)) * scale, 0.0, n_bands - 1.0)
    return torch.clamp(1.0 - (position[None, :] - torch.arange(n_bands)[:, None]).abs(), min=0.0)


def gather_matrix(
    n_bands: int, n_bins: int, sample_rate: int, lowest: float = 20.0, highest: float = math.inf
) -> Tensor:
    """Returns [n_bins, n_bands]: triangular mel filters whose weights sum to 1; no band is empty.

    They reach from `lowest` to `highest` Hz, or to the Nyquist frequency; bins from 0 Hz to there.
    """
    nyquist = sample_rate / 2
    top = torch.tensor(min(highest, nyquist))
    edges = torch.linspace(float(mel(torch.tensor(lowest))), float(mel(top)), n_bands + 2)
    centres = hertz(edges)
    step = nyquist / (n_bins - 1)
    left = torch.minimum(centres[:-2], centres[1:-1] - step)
    right = torch.maximum(centres[2:], centres[1:-1] + step)
    bins = torch.linspace(0.0, nyquist, n_bins)[:, None]
    rising = (bins - left) / (centres[1:-1] - left)
    falling = (right - bins) / (right - centres[1:-1])
    weights = torch.clamp(torch.minimum(rising, falling), min=0.0)
    return weights / weights.sum(dim=0, keepdim=True)


def midi_to_hertz(midi: Tensor) -> Tensor:
    """Returns the Hz of (fractional) MIDI note numbers; 69 = 440 Hz."""
    return 440.0 * torch.exp2((midi - 69.0) / 12.0)


def pitch_features(midi: Tensor) -> Tensor:
    """Returns smooth features of MIDI note numbers [...] for a network to read: [..., N_PITCH_FEATURES]."""
    features = [(midi - 66.0) / 24.0]
    for period in (6.0, 12.0, 24.0, 48.0, 96.0):
        angle = midi * (2 * math.pi / period)
        features += [torch.sin(angle), torch.cos(angle)]
    return torch.stack(features, dim=-1)


class FundamentalTracker(nn.Module):
    """Finds how far a note's fundamental lies from its nominal pitch, frame by frame.

    The strength of a candidate is the sum of the magnitudes at its first harmonics; a parabola through the
    best candidate and its neighbours gives the fraction, and the loudness-weighted mean over neighbouring
    frames steadies it. Frames far below the note's strongest one take the note's mean.
    """

    window: Tensor  # [WINDOW]
    offsets: Tensor  # [C], semitones
    harmonics: Tensor  # [N_HARMONICS], 1, 2, 3, ...

    def __init__(self, sample_rate: int, hop_length: int) -> None:
        super().__init__()
        self.bins_per_hertz = TRANSFORM / sample_rate
        self.hop_length = hop_length
        n = round(REACH / STEP)
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("offsets", torch.arange(-n, n + 1) * STEP, persistent=False)
        self.register_buffer("harmonics", torch.arange(1, N_HARMONICS + 1).float(), persistent=False)

    def forward(self, audio: Tensor, pitch: Tensor) -> Tensor:
        """Returns each frame's MIDI note number [B, T], of notes [B, S] and their nominal pitch [B]."""
        magnitude = self._spectrum(audio)
        n_batch, n_frames, _ = magnitude.shape
        frequency = midi_to_hertz(pitch[:, None] + self.offsets)  # [B, C]
        position = (frequency[:, :, None] * self.harmonics * self.bins_per_hertz).flatten(1)  # [B, C * N]
        strength = _read_peak(magnitude, position[:, None].expand(-1, n_frames, -1))
        salience = strength.reshape(n_batch, n_frames, self.offsets.shape[0], -1).sum(dim=-1)  # [B, T, C]
        inner = salience[:, :, 1:-1]
        best = inner.argmax(dim=-1, keepdim=True)
        left = torch.gather(salience, 2, best)
        peak = torch.gather(salience, 2, best + 1)
        right = torch.gather(salience, 2, best + 2)
        curve = torch.clamp(2 * peak - left - right, min=1e-9)
        shift = torch.clamp(0.5 * (right - left) / curve, -1.0, 1.0)
        offset = (self.offsets[best + 1] + shift * STEP)[:, :, 0]  # [B, T]
        weight = peak[:, :, 0] ** 2 + 1e-12
        weight = weight / weight.amax(dim=1, keepdim=True)
        mean = (weight * offset).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True)
        padded_weight = nn.functional.pad(weight, (1, 1))
        padded_product = nn.functional.pad(weight * offset, (1, 1))
        near_weight = padded_weight[:, :-2] + padded_weight[:, 1:-1] + padded_weight[:, 2:]
        near = (padded_product[:, :-2] + padded_product[:, 1:-1] + padded_product[:, 2:]) / near_weight
        trust = torch.clamp(weight / 1e-4, max=1.0)
        return pitch[:, None] + mean + trust * (near - mean)

    def _spectrum(self, audio: Tensor) -> Tensor:
        """Returns magnitudes [B, T, F] around the frames' centres; a sinusoid's peak is its amplitude."""
        hop = self.hop_length
        n_frames = (audio.shape[1] + hop - 1) // hop
        before = WINDOW // 2 - hop // 2
        after = (n_frames - 1) * hop + WINDOW - before - audio.shape[1]
        framed = nn.functional.pad(audio, (before, after)).unfold(1, WINDOW, hop)
        return torch.abs(torch.fft.rfft(framed * self.window, n=TRANSFORM)) * (4.0 / WINDOW)


def _read_peak(spectrum: Tensor, position: Tensor) -> Tensor:
    """Reads Hann peaks of spectrum [B, T, F] at fractional bins [B, T, P], by a parabola through the logs of
    the three nearest bins; 0 beyond the last bin."""
    middle = torch.clamp(torch.round(position).long(), 1, spectrum.shape[-1] - 2)
    shift = torch.clamp(position - middle.float(), -0.5, 0.5)
    left, centre, right = (torch.log(torch.gather(spectrum, 2, middle + i) + 1e-9) for i in (-1, 0, 1))
    log_value = centre + 0.5 * shift * (right - left) + 0.5 * shift**2 * (left - 2 * centre + right)
    return torch.where(position < spectrum.shape[-1] - 2, torch.exp(log_value), torch.zeros_like(centre))
