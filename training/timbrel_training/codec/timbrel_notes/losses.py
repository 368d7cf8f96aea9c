"""What the codec is trained for: spectra that agree at several resolutions, whatever the phase."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.bands import gather_matrix

RESOLUTIONS = ((256, 24), (512, 40), (1024, 64), (2048, 96), (4096, 160))
"""(window in samples, mel bands); the hop is a quarter of the window."""
N_CHOSEN = 3
"""Resolutions drawn for each training step: the rest wait for another, and the step costs 40 % less."""
FLOOR_DB = 70.0
"""Depth below the note's peak at which differences stop to count; evaluation clips at 60 dB."""


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
        """Loss of audio [B, S] against [B, S]; `peak` [B] is each whole note's peak amplitude."""
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
        """Mel amplitudes [B, bands, frames]."""
        taper = getattr(self, f"window_{window}")
        spectrum = torch.stft(audio, window, window // 4, window=taper, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        scale = (4.0 / window) ** 2
        return torch.sqrt(torch.matmul(getattr(self, f"bands_{window}"), power) * scale + 1e-12)
