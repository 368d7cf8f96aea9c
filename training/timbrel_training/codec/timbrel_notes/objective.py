"""The losses that the timbrel-notes codec is trained by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.codec.interface import Expression
from timbrel_training.codec.timbrel_notes.analysis import (
    fundamental_to_code,
    gather_matrix,
    midi_to_hertz,
    read_peak,
)
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes

RESOLUTIONS = ((256, 24), (512, 40), (1024, 64), (2048, 96), (4096, 160))
"""(window in samples, mel bands); the hop is a quarter of the window."""
N_CHOSEN = 3
"""Resolutions drawn for each training step: the rest wait for another, and the step costs 40 % less."""
FLOOR_DB = 70.0
"""Depth below the note's peak at which differences stop to count; evaluation clips at 60 dB."""
COMMITMENT_WEIGHT = 0.25
PITCH_WEIGHT = 0.05
HARMONIC_WEIGHT = 0.15
HARMONIC_FLOOR_DB = 65.0
"""Depth below the note's peak from which on a harmonic only has to be quieter than that."""


class SpectralLoss(nn.Module):
    """Mean absolute difference of log-mel spectra over several resolutions, in nepers, plus a linear part.

    The linear part (relative to the loudest) keeps the loud partials sharp, the logarithmic one the quiet.
    """

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for window, n_bands in RESOLUTIONS:
            self.register_buffer(f"window_{window}", torch.hann_window(window), persistent=False)
            bands = gather_matrix(n_bands, window // 2 + 1, sample_rate).T.contiguous()
            self.register_buffer(f"bands_{window}", bands, persistent=False)

    def forward(self, output: Tensor, target: Tensor, peak: Tensor) -> Tensor:
        """Returns the loss of audio [B, S] against [B, S]; `peak` [B] is each whole note's peak amplitude."""
        floor = (peak * 10 ** (-FLOOR_DB / 20))[:, None, None]
        chosen = (
            torch.randperm(len(RESOLUTIONS))[:N_CHOSEN].tolist() if self.training else range(len(RESOLUTIONS))
        )
        losses = []
        for window, _ in (RESOLUTIONS[i] for i in chosen):
            with torch.no_grad():
                expected = self._bands(target, window)
            found = self._bands(output, window)
            log_part = (torch.log(found + floor) - torch.log(expected + floor)).abs().mean()
            total = expected.sum(dim=(1, 2)) + floor[:, 0, 0]
            linear_part = ((found - expected).abs().sum(dim=(1, 2)) / total).clamp(max=4).mean()
            losses.append(log_part + 0.5 * linear_part)
        return torch.stack(losses).mean()

    def _bands(self, audio: Tensor, window: int) -> Tensor:
        """Returns mel amplitudes [B, bands, frames]."""
        taper = getattr(self, f"window_{window}")
        spectrum = torch.stft(audio, window, window // 4, window=taper, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        scale = (4.0 / window) ** 2
        return torch.sqrt(torch.matmul(getattr(self, f"bands_{window}"), power) * scale + 1e-12)


@dataclass(frozen=True)
class SegmentBatch:
    """A batch of pieces of notes."""

    audio: Tensor  # float32 [B, S]
    pitch: Tensor  # float32 [B], MIDI note numbers
    peak: Tensor  # float32 [B], peak amplitude of the whole note


class CodecObjective(nn.Module):
    """The codec with its losses: spectra, harmonics, commitment, steadiness, the pitch estimator's own.

    Args:
        codec: is trained.
        steadiness_weight: of the latents' change from frame to frame as a share of their spread: what stands
            still in the sound should stand still in the codes, and the codes need not follow noise.
    """

    def __init__(self, codec: TimbrelNotes, steadiness_weight: float = 0.1) -> None:
        super().__init__()
        self.steadiness_weight = steadiness_weight
        self.codec = codec
        self.spectral = SpectralLoss(codec.sample_rate)

    def forward(
        self, batch: SegmentBatch, n_codebooks: int | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss (scalar) and its named parts.

        Args:
            batch: the segments.
            n_codebooks: residual codebooks to use, None for all: training with fewer now and then (quantizer
                dropout, SoundStream) puts the coarse shape into the first ones.
        """
        codec, analysis = self.codec, self.codec.analysis
        with torch.autocast(batch.audio.device.type, enabled=False):
            long = analysis.long_spectrum(batch.audio)
            fundamental = analysis.tracker(long, batch.pitch)
            features = analysis.features(long, analysis.short_spectrum(batch.audio), fundamental)
        latents = codec.encoder(features).float()
        with torch.autocast(batch.audio.device.type, enabled=False):
            quantized, _, commitment = codec.quantizer(latents, n_codebooks)
            code = fundamental_to_code(fundamental, codec.config)
            plain = Expression.of(code)
            state = codec.decoder.initial_state(batch.audio.shape[0])
            controls, after = codec.decoder.controls(quantized, code, plain, state)
            audio, _ = codec.decoder.play(controls, plain.seed, after)
            harmonic = harmonic_loss(codec, controls.log_amplitudes, long, fundamental, batch.peak)
            delay = codec.delay_samples
            spectral = self.spectral(audio[:, delay:], batch.audio[:, :-delay], batch.peak)
            steadiness = _steadiness(latents)
            classes = torch.round(batch.pitch).long() - analysis.pitch_estimator.lowest
            pitch = nn.functional.cross_entropy(analysis.pitch_estimator.logits(long), classes)
        loss = (
            spectral
            + HARMONIC_WEIGHT * harmonic
            + COMMITMENT_WEIGHT * commitment
            + self.steadiness_weight * steadiness
            + PITCH_WEIGHT * pitch
        )
        parts = {"spectral": spectral, "harmonic": harmonic, "commitment": commitment}
        parts |= {"steadiness": steadiness, "pitch": pitch}
        return loss, {name: value.detach() for name, value in parts.items()}


def harmonic_loss(
    codec: TimbrelNotes, log_amplitudes: Tensor, long: Tensor, fundamental: Tensor, peak: Tensor
) -> Tensor:
    """Returns the mean difference in nepers of the harmonics told to sound from those measured.

    Without it training may settle where the noise imitates everything and the harmonics have died out: an
    amplitude far below what is heard leaves the spectral loss no gradient.

    Args:
        codec: whose harmonics.
        log_amplitudes: [B, T * n_subframes, H], what the decoder tells them to play.
        long: [B, T, F], magnitudes of the sound to be matched (`Analysis.long_spectrum`).
        fundamental: [B, T], MIDI note numbers.
        peak: [B], peak amplitude of each whole note.
    """
    config, analysis = codec.config, codec.analysis
    numbers = analysis.harmonics[: config.n_harmonics]  # N of them
    position = midi_to_hertz(fundamental)[:, :, None] * numbers * analysis.bins_per_hertz
    measured = read_peak(long, position)  # [B, T, N]
    told = log_amplitudes[:, config.n_subframes // 2 :: config.n_subframes, : len(numbers)]
    floor = torch.log(peak)[:, None, None] - HARMONIC_FLOOR_DB / 8.686
    log_measured = torch.log(measured + 1e-9)
    difference = torch.where(
        log_measured > floor, (told - log_measured).abs(), nn.functional.relu(told - floor)
    )
    below_nyquist = (position < long.shape[2] - 3).float()
    return (difference * below_nyquist).sum() / below_nyquist.sum()


def _steadiness(latents: Tensor) -> Tensor:
    """Returns how much latents [B, T, D] change from frame to frame, relative to how far they spread.

    Relative, since a network would otherwise just scale its latents down.
    """
    change = (latents[:, 1:] - latents[:, :-1]).abs().mean()
    spread = (latents - latents.mean(dim=(0, 1))).abs().mean()
    return change / (spread + 1e-6)
