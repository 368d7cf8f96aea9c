"""The fundamental: it is measured around a note's pitch, coded in even steps, described to the networks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig

N_PITCH_FEATURES = 11


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


def fundamental_to_code(midi: Tensor, config: TimbrelNotesConfig) -> Tensor:
    """Returns the nearest fundamental code, int64, of MIDI note numbers."""
    steps = torch.round((midi - config.fundamental_min) * config.fundamental_steps_per_semitone)
    return torch.clamp(steps, 0, config.codebook_size - 1).long()


def code_to_fundamental(code: Tensor, config: TimbrelNotesConfig) -> Tensor:
    """Returns the MIDI note number, float32, of fundamental codes."""
    return config.fundamental_min + code.float() / config.fundamental_steps_per_semitone


def read_spectrum(spectrum: Tensor, position: Tensor) -> Tensor:
    """Interpolates spectrum [B, T, F] linearly at fractional bins [B, T, P]; 0 beyond the last bin."""
    last = spectrum.shape[-1] - 2
    index = torch.clamp(position.long(), 0, last)
    fraction = position - index.float()
    low = torch.gather(spectrum, 2, index)
    high = torch.gather(spectrum, 2, index + 1)
    return torch.where(position < last, low + (high - low) * fraction, torch.zeros_like(low))


def read_peak(spectrum: Tensor, position: Tensor) -> Tensor:
    """Reads as `read_spectrum`, by a parabola through the logs of the three nearest bins, for Hann peaks."""
    middle = torch.clamp(torch.round(position).long(), 1, spectrum.shape[-1] - 2)
    shift = torch.clamp(position - middle.float(), -0.5, 0.5)
    left, centre, right = (torch.log(torch.gather(spectrum, 2, middle + i) + 1e-9) for i in (-1, 0, 1))
    log_value = centre + 0.5 * shift * (right - left) + 0.5 * shift**2 * (left - 2 * centre + right)
    return torch.where(position < spectrum.shape[-1] - 2, torch.exp(log_value), torch.zeros_like(centre))


class FundamentalTracker(nn.Module):
    """Finds how far a note's fundamental lies from its nominal pitch, frame by frame.

    The strength of a candidate is the sum of the magnitudes at its first harmonics; a parabola through the
    best candidate and its neighbours gives the fraction, and the loudness-weighted mean over neighbouring
    frames steadies it. Frames far below the note's strongest one take the note's mean.
    """

    offsets: Tensor  # [C], semitones
    harmonics: Tensor  # [N], 1, 2, 3, ...

    def __init__(
        self, bins_per_hertz: float, reach: float = 0.72, step: float = 0.06, n_harmonics: int = 12
    ) -> None:
        super().__init__()
        self.bins_per_hertz = bins_per_hertz
        self.step = step
        n = round(reach / step)
        self.register_buffer("offsets", torch.arange(-n, n + 1) * step, persistent=False)
        self.register_buffer("harmonics", torch.arange(1, n_harmonics + 1).float(), persistent=False)

    def forward(self, magnitude: Tensor, pitch: Tensor) -> Tensor:
        """Returns each frame's MIDI note number [B, T], of magnitudes [B, T, F] and nominal pitch [B]."""
        n_batch, n_frames, _ = magnitude.shape
        frequency = midi_to_hertz(pitch[:, None] + self.offsets)  # [B, C]
        position = (frequency[:, :, None] * self.harmonics * self.bins_per_hertz).flatten(1)  # [B, C * N]
        strength = read_peak(magnitude, position[:, None].expand(-1, n_frames, -1))
        salience = strength.reshape(n_batch, n_frames, self.offsets.shape[0], -1).sum(dim=-1)  # [B, T, C]
        inner = salience[:, :, 1:-1]
        best = inner.argmax(dim=-1, keepdim=True)
        left = torch.gather(salience, 2, best)
        peak = torch.gather(salience, 2, best + 1)
        right = torch.gather(salience, 2, best + 2)
        curve = torch.clamp(2 * peak - left - right, min=1e-9)
        shift = torch.clamp(0.5 * (right - left) / curve, -1.0, 1.0)
        offset = (self.offsets[best + 1] + shift * self.step)[:, :, 0]  # [B, T]
        weight = peak[:, :, 0] ** 2 + 1e-12
        weight = weight / weight.amax(dim=1, keepdim=True)
        mean = (weight * offset).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True)
        padded_weight = nn.functional.pad(weight, (1, 1))
        padded_product = nn.functional.pad(weight * offset, (1, 1))
        near_weight = padded_weight[:, :-2] + padded_weight[:, 1:-1] + padded_weight[:, 2:]
        near = (padded_product[:, :-2] + padded_product[:, 1:-1] + padded_product[:, 2:]) / near_weight
        trust = torch.clamp(weight / 1e-4, max=1.0)
        return pitch[:, None] + mean + trust * (near - mean)


class PitchEstimator(nn.Module):
    """Guesses the MIDI note number of a recording whose pitch nobody stated."""

    position: Tensor  # fractional bins that the profile is read at

    def __init__(
        self, bins_per_hertz: float, lowest: int = 24, n_pitches: int = 86, per_semitone: int = 3
    ) -> None:
        super().__init__()
        self.lowest = lowest
        midi = torch.arange((n_pitches + 24) * per_semitone) / per_semitone + lowest
        self.register_buffer("position", midi_to_hertz(midi) * bins_per_hertz, persistent=False)
        self.hidden = nn.Linear(midi.shape[0], 256)
        self.middle = nn.Linear(256, 256)
        self.out = nn.Linear(256, n_pitches)

    def logits(self, magnitude: Tensor) -> Tensor:
        """Returns scores [B, n_pitches] from magnitudes [B, T, F]."""
        mean = magnitude.mean(dim=1, keepdim=True)
        profile = read_spectrum(mean, self.position.expand(magnitude.shape[0], 1, -1))[:, 0]
        profile = torch.log(profile / (profile.amax(dim=1, keepdim=True) + 1e-9) + 1e-3) / 3.0 + 1.0
        hidden = nn.functional.gelu(self.hidden(profile))
        return self.out(nn.functional.gelu(self.middle(hidden)))

    def forward(self, magnitude: Tensor) -> Tensor:
        """Returns the most likely MIDI note number, float32 [B]."""
        return self.logits(magnitude).argmax(dim=1).float() + self.lowest
