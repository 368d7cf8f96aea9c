"""The analysis of a note: mel bands, its fundamental, and the spectra that the encoder reads.

The fundamental is measured around the note's pitch, coded in even steps, and described to the networks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig

LONG_WINDOW = 4096
LONG_TRANSFORM = 8192
SHORT_WINDOW = 1024
N_LONG_BANDS = 128
N_SHORT_BANDS = 64
N_HARMONICS_SEEN = 64
N_PITCH_FEATURES = 11


def mel(frequency: Tensor) -> Tensor:
    """Returns the mel of Hz, after O'Shaughnessy (1987): about linear below 700 Hz, logarithmic above."""
    return 2595.0 * torch.log10(1.0 + frequency / 700.0)


def hertz(mels: Tensor) -> Tensor:
    """Returns the Hz of mel."""
    return 700.0 * (torch.pow(10.0, mels / 2595.0) - 1.0)


def band_position(frequency: Tensor, n_bands: int, top: float) -> Tensor:
    """Places a frequency in Hz among bands centred evenly in mel from 0 Hz to `top`: 0 .. n_bands - 1."""
    scale = (n_bands - 1) / float(mel(torch.tensor(top)))
    return torch.clamp(mel(frequency) * scale, 0.0, n_bands - 1.0)


def spread_matrix(n_bands: int, n_bins: int, sample_rate: int) -> Tensor:
    """Returns [n_bands, n_bins], which interpolates band values linearly onto DFT bins, from 0 to Nyquist."""
    nyquist = sample_rate / 2
    position = band_position(torch.linspace(0.0, nyquist, n_bins), n_bands, nyquist)
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
        """Returns magnitudes [B, T, F] around the frames' centres; a sinusoid's peak is its amplitude."""
        hop = self.config.hop_length
        n_frames = (audio.shape[1] + hop - 1) // hop
        before = LONG_WINDOW // 2 - hop // 2
        after = (n_frames - 1) * hop + LONG_WINDOW - before - audio.shape[1]
        framed = nn.functional.pad(audio, (before, after)).unfold(1, LONG_WINDOW, hop)
        spectrum = torch.fft.rfft(framed * self.long_window, n=LONG_TRANSFORM)
        return torch.abs(spectrum) * (4.0 / LONG_WINDOW)

    def short_spectrum(self, audio: Tensor) -> Tensor:
        """Returns magnitudes [B, T * n_subframes, F'] around each control point."""
        hop, sub_hop = self.config.hop_length, self.config.sub_hop
        n_points = (audio.shape[1] + hop - 1) // hop * self.config.n_subframes
        before = SHORT_WINDOW // 2
        after = (n_points - 1) * sub_hop + SHORT_WINDOW - before - audio.shape[1]
        framed = nn.functional.pad(audio, (before, after)).unfold(1, SHORT_WINDOW, sub_hop)
        return torch.abs(torch.fft.rfft(framed * self.short_window)) * (4.0 / SHORT_WINDOW)

    def forward(self, audio: Tensor, pitch: Tensor) -> tuple[Tensor, Tensor]:
        """Returns features and fundamentals of a batch; pitch <= 0 means unknown and is estimated."""
        long = self.long_spectrum(audio)
        nominal = torch.where(pitch > 0, pitch, self.pitch_estimator(long))
        fundamental = self.tracker(long, nominal)
        return self.features(long, self.short_spectrum(audio), fundamental), fundamental

    def features(self, long: Tensor, short: Tensor, fundamental: Tensor) -> Tensor:
        """Returns log bands, log harmonics and pitch features of each frame."""
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
    """Returns the natural log with a floor near -100 dB, centred for a network."""
    return (torch.log(magnitude + 1e-5) + 7.0) / 3.0
