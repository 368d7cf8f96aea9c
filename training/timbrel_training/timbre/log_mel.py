"""The timbre encoder's front end: audio to levels in mel bands, as fixed products that a graph can hold."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysis import gather_matrix

SILENCE_DB = -150.0
"""The level of silence; 0 dB is a sine of amplitude 1 within one bin of the transform."""
HOPS_PER_WINDOW = 1.5
"""A window is the shortest power of two in samples that spans so many hops."""


class LogMel(nn.Module):
    """Audio [B, S] -> levels [B, n_frames, n_bands] in dB of a note's first frames.

    A frame's window ends where the frame ends. So what is cut off behind a frame changes nothing in it: the
    first frames of a note's levels are the levels of its first frames alone.

    The discrete Fourier transform is taken in two stages (Cooley and Tukey, 1965), each a product with a
    small matrix: a graph of it holds kilobytes where one product with all sines would take megabytes.
    Nothing here is trained or part of the state dict.
    """

    window: Tensor  # [rows * columns]
    first: Tensor  # [2, rows, rows], cosines and sines over the samples that lie `columns` apart
    twiddle: Tensor  # [2, rows, columns]
    second: Tensor  # [2, columns, columns / 2]
    bands: Tensor  # [rows * columns / 2, n_bands]

    def __init__(
        self, sample_rate: int, frame_rate: float, n_frames: int, n_bands: int, lowest: float, highest: float
    ) -> None:
        """Frames are `sample_rate / frame_rate` samples long, rounded; bands lie evenly in mel, in Hz."""
        super().__init__()
        self.n_frames = n_frames
        self.hop_length = round(sample_rate / frame_rate)
        n_bits = math.ceil(math.log2(HOPS_PER_WINDOW * self.hop_length))
        length, rows = 2**n_bits, 2 ** (n_bits // 2)
        columns = length // rows
        window = torch.hann_window(length, dtype=torch.float64)
        row, column = torch.arange(rows), torch.arange(columns)
        bands = gather_matrix(n_bands, length // 2 + 1, sample_rate, lowest, highest)[:-1]
        for name, buffer in {
            "window": window * (2.0 / window.sum()),
            "first": _waves(row, row, rows),
            "twiddle": _waves(row, column, length),
            "second": _waves(column, column[: columns // 2], columns),
            "bands": bands,
        }.items():
            self.register_buffer(name, buffer.float(), persistent=False)

    def count(self, n_samples: Tensor) -> Tensor:
        """Returns the frames, int64 [B], that hold any of a note's samples, int64 [B]: 1 .. n_frames."""
        frames = torch.div(n_samples + (self.hop_length - 1), self.hop_length, rounding_mode="floor")
        return frames.clamp(1, self.n_frames)

    def forward(self, audio: Tensor, n_samples: Tensor) -> Tensor:
        """Returns levels float32 [B, n_frames, n_bands], at least SILENCE_DB, of audio float32 [B, S], any S,
        of which each note has `n_samples` int64 [B]; what lies behind is ignored."""
        length, hop = len(self.window), self.hop_length
        before, all_frames = length - hop, self.n_frames * hop
        zeros = audio.new_zeros(audio.shape[0], all_frames)
        padded = torch.cat([zeros[:, :before], audio, zeros], dim=1)[:, : before + all_frames]
        present = torch.arange(before + all_frames, device=audio.device) < (n_samples + before)[:, None]
        framed = torch.where(present, padded, 0.0).unfold(1, length, hop) * self.window
        power = self._power(framed) @ self.bands
        # Not a sum with the least power, which exporters take for a sum with 0.
        return 10.0 * torch.log10(power.clamp(min=10.0 ** (SILENCE_DB / 10.0)))

    def _power(self, framed: Tensor) -> Tensor:
        """Returns the power [B, F, n / 2] of each frequency of frames [B, F, n]."""
        samples = framed.unflatten(2, self.twiddle.shape[1:])  # [B, F, rows, columns]
        # Imaginary parts are kept negated, as transforms turn backwards.
        real, imaginary = self.first[0] @ samples, self.first[1] @ samples
        cosines, sines = self.twiddle[0], self.twiddle[1]
        real, imaginary = real * cosines - imaginary * sines, real * sines + imaginary * cosines
        cosines, sines = self.second[0], self.second[1]
        real, imaginary = real @ cosines - imaginary @ sines, real @ sines + imaginary @ cosines
        return (real.square() + imaginary.square()).transpose(2, 3).flatten(2)


def _waves(row: Tensor, column: Tensor, period: int) -> Tensor:
    """Returns cosines and sines, float64 [2, rows, columns], of 2 pi row column / period."""
    angle = torch.outer(row, column).remainder(period).double() * (2 * math.pi / period)
    return torch.stack([torch.cos(angle), torch.sin(angle)])
