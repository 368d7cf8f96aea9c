"""What the encoder sees of a note: spectra, coarse and fine in time, and the harmonics of its fundamental."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.fundamental import (
    N_PITCH_FEATURES,
    FundamentalTracker,
    PitchEstimator,
    midi_to_hertz,
    pitch_features,
    read_spectrum,
)


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


LONG_WINDOW = 4096
LONG_TRANSFORM = 8192
SHORT_WINDOW = 1024
N_LONG_BANDS = 128
N_SHORT_BANDS = 64
N_HARMONICS_SEEN = 64


class Analysis(nn.Module):
    """Audio [B, S] and nominal pitch [B] -> features [B, T, n_features] and fundamentals [B, T] (MIDI)."""

    long_window: Tensor  # [LONG_WINDOW]
    short_window: Tensor  # [SHORT_WINDOW]
    long_bands: Tensor  # [LONG_TRANSFORM / 2 + 1, N_LONG_BANDS]
    short_bands: Tensor  # [SHORT_WINDOW / 2 + 1, N_SHORT_BANDS]
    harmonics: Tensor  # [N_HARMONICS_SEEN], 1, 2, 3, ...

    def __init__(self, config: TimbrelNotesConfig) -> None:
        super().__init__()
        self.config = config
        rate = config.sample_rate
        self.bins_per_hertz = LONG_TRANSFORM / rate
        self.register_buffer("long_window", torch.hann_window(LONG_WINDOW), persistent=False)
        self.register_buffer("short_window", torch.hann_window(SHORT_WINDOW), persistent=False)
        long_bands = gather_matrix(N_LONG_BANDS, LONG_TRANSFORM // 2 + 1, rate)
        short_bands = gather_matrix(N_SHORT_BANDS, SHORT_WINDOW // 2 + 1, rate)
        self.register_buffer("long_bands", long_bands, persistent=False)
        self.register_buffer("short_bands", short_bands, persistent=False)
        self.register_buffer("harmonics", torch.arange(1, N_HARMONICS_SEEN + 1).float(), persistent=False)
        self.tracker = FundamentalTracker(self.bins_per_hertz)
        self.pitch_estimator = PitchEstimator(self.bins_per_hertz)

    @property
    def n_features(self) -> int:
        """Width of the features of one frame."""
        return N_LONG_BANDS + self.config.n_subframes * N_SHORT_BANDS + N_HARMONICS_SEEN + N_PITCH_FEATURES

    def long_spectrum(self, audio: Tensor) -> Tensor:
        """Magnitudes [B, T, F] around the frames' centres; a sinusoid's peak is its amplitude."""
        hop = self.config.hop_length
        n_frames = (audio.shape[1] + hop - 1) // hop
        before = LONG_WINDOW // 2 - hop // 2
        after = (n_frames - 1) * hop + LONG_WINDOW - before - audio.shape[1]
        framed = nn.functional.pad(audio, (before, after)).unfold(1, LONG_WINDOW, hop)
        spectrum = torch.fft.rfft(framed * self.long_window, n=LONG_TRANSFORM)
        return torch.abs(spectrum) * (4.0 / LONG_WINDOW)

    def short_spectrum(self, audio: Tensor) -> Tensor:
        """Magnitudes [B, T * n_subframes, F'] around each control point."""
        hop, sub_hop = self.config.hop_length, self.config.sub_hop
        n_points = (audio.shape[1] + hop - 1) // hop * self.config.n_subframes
        before = SHORT_WINDOW // 2
        after = (n_points - 1) * sub_hop + SHORT_WINDOW - before - audio.shape[1]
        framed = nn.functional.pad(audio, (before, after)).unfold(1, SHORT_WINDOW, sub_hop)
        return torch.abs(torch.fft.rfft(framed * self.short_window)) * (4.0 / SHORT_WINDOW)

    def forward(self, audio: Tensor, pitch: Tensor) -> tuple[Tensor, Tensor]:
        """Features and fundamentals of a batch; pitch <= 0 means unknown and is estimated."""
        long = self.long_spectrum(audio)
        nominal = torch.where(pitch > 0, pitch, self.pitch_estimator(long))
        fundamental = self.tracker(long, nominal)
        return self.features(long, self.short_spectrum(audio), fundamental), fundamental

    def features(self, long: Tensor, short: Tensor, fundamental: Tensor) -> Tensor:
        """Log bands, log harmonics and pitch features of each frame."""
        n_batch, n_frames, _ = long.shape
        position = midi_to_hertz(fundamental)[:, :, None] * self.harmonics * self.bins_per_hertz
        parts = [
            _log(torch.sqrt(long**2 @ self.long_bands)),
            _log(torch.sqrt(short**2 @ self.short_bands)).reshape(n_batch, n_frames, -1),
            _log(read_spectrum(long, position)),
            pitch_features(fundamental),
        ]
        return torch.cat(parts, dim=2)


def _log(magnitude: Tensor) -> Tensor:
    """Natural log with a floor near -100 dB, centred for a network."""
    return (torch.log(magnitude + 1e-5) + 7.0) / 3.0
