"""The timbre encoder: it hears a note, compares it with the instruments, and returns a point among them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.errors import ConfigError
from timbrel_training.settings import check_at_least
from timbrel_training.timbre.log_mel import SILENCE_DB, LogMel


@dataclass(frozen=True)
class TimbreEncoderConfig:
    """Sizes and choices of `TimbreEncoder`."""

    frame_rate: float = 37.5
    """Frames per second, about: a frame is a whole number of samples."""
    n_frames: int = 115
    """Frames looked at, from the note's start: 3 s show attack and decay."""
    n_bands: int = 64
    """Mel bands of a frame."""
    lowest_hertz: float = 40.0
    """Where the bands begin."""
    highest_hertz: float = 16_000.0
    """Where they end, or at half the sample rate where that is lower."""
    range_db: float = 70.0
    """Levels further than this below a note's loudest one are taken to be as far: nobody hears them."""
    width: int = 128
    """Channels: instruments are told apart by less than notes are written with."""
    n_layers: int = 3
    """Strided convolutions, which halve the frames each."""
    embedding_width: int = 64
    """Numbers by which a note is compared with each instrument: two, its point, tell too few apart."""
    dropout: float = 0.1
    """Share of channels hidden in training; a few thousand notes are soon learned by heart."""

    def __post_init__(self) -> None:
        if not 0 <= self.lowest_hertz < self.highest_hertz:
            raise ConfigError(f"lowest_hertz: {self.lowest_hertz}, expected 0 up to highest_hertz")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: {self.dropout}, expected at least 0 and below 1")
        check_at_least(self, frame_rate=1, n_frames=1, n_bands=1, range_db=1, embedding_width=1)
        check_at_least(self, width=1, n_layers=1)


SHARPNESS = 16.0
"""A cosine that is larger by the inverse of this makes an instrument e times as likely."""


class TimbreEncoder(nn.Module):
    """A note's audio to an embedding that instruments are told by, and to a point of the timbre map.

    The point is the mean of the instruments' places, each weighted by how likely the note is one of it: that
    of an instrument which is known well is its place, and what is like several lies between them. How loud
    the audio is does not count: levels are relative to the note's loudest.
    """

    mean: Tensor  # [n_bands], of the training notes' relative levels
    deviation: Tensor  # [n_bands]
    places: Tensor  # [n_instruments, 2], in the unit disc

    def __init__(self, config: TimbreEncoderConfig, sample_rate: int, n_instruments: int) -> None:
        super().__init__()
        self.config = config
        self.sample_rate = sample_rate
        self.log_mel = LogMel(
            sample_rate,
            config.frame_rate,
            config.n_frames,
            config.n_bands,
            config.lowest_hertz,
            config.highest_hertz,
        )
        self.register_buffer("mean", torch.zeros(config.n_bands))
        self.register_buffer("deviation", torch.ones(config.n_bands))
        self.trunk = StridedTrunk(config, config.n_bands)
        self.embed = nn.Linear(config.width, config.embedding_width)
        self.directions = nn.Parameter(torch.randn(n_instruments, config.embedding_width))
        self.register_buffer("places", torch.zeros(n_instruments, 2))

    def forward(self, audio: Tensor, n_samples: Tensor) -> tuple[Tensor, Tensor]:
        """Returns points float32 [B, 2] in the unit disc, and embeddings [B, embedding_width], of audio
        float32 [B, S] at `sample_rate`, any S, of which each note has `n_samples` int64 [B]; what lies behind
        is ignored."""
        embedding = self.hear(self.log_mel(audio, n_samples), self.log_mel.count(n_samples))
        return self.point(embedding), embedding

    def place(self, levels: Tensor, n_frames: Tensor) -> Tensor:
        """Returns the points float32 [B, 2] of notes given as `hear` takes them."""
        return self.point(self.hear(levels, n_frames))

    def point(self, embedding: Tensor) -> Tensor:
        """Returns the points float32 [B, 2] of embeddings [B, embedding_width]."""
        return torch.softmax(SHARPNESS * self.cosines(embedding), dim=1) @ self.places

    def cosines(self, embedding: Tensor) -> Tensor:
        """Returns how near embeddings are to each instrument, [B, n_instruments], -1 .. 1."""
        return embedding @ _unit(self.directions).T

    def hear(self, levels: Tensor, n_frames: Tensor) -> Tensor:
        """Returns the embeddings, float32 [B, embedding_width] of length 1, of notes given by their `log_mel`
        levels, float32 [B, F, n_bands]; those behind a note's `n_frames` int64 [B], 1..F, are ignored."""
        mask = frame_mask(n_frames, self.config.n_frames)  # [B, F, 1]
        features = self.trunk(self.normalise(levels, mask), mask).float()
        return _unit(self.embed(features).float())

    def normalise(self, levels: Tensor, mask: Tensor) -> Tensor:
        """Returns relative levels with mean 0 and variance 1 over the training notes; 0 where the mask is."""
        return (self.relative(levels, mask) - self.mean) / self.deviation * mask

    def relative(self, levels: Tensor, mask: Tensor) -> Tensor:
        """Returns levels [B, F, n_bands] relative to each note's loudest: -range_db .. 0 dB."""
        loudest = torch.where(mask > 0, levels, SILENCE_DB).amax(dim=(1, 2), keepdim=True)
        return (levels - loudest).clamp(-self.config.range_db, 0.0)

    def fit(self, levels: Tensor, n_frames: Tensor) -> None:
        """Takes over mean and deviation from training notes; arguments are those of `hear`."""
        mask = frame_mask(n_frames, self.config.n_frames)
        frames = self.relative(levels, mask)[mask[:, :, 0] > 0]  # [frames, n_bands]
        self.mean.copy_(frames.mean(dim=0))
        self.deviation.copy_(frames.std(dim=0).clamp(min=1e-2))


class StridedTrunk(nn.Module):
    """Convolutions of stride 2 over frames, then a mean over the note: [B, F, D] -> [B, width]."""

    def __init__(self, config: TimbreEncoderConfig, n_features: int) -> None:
        super().__init__()
        widths = [n_features, *[config.width] * config.n_layers]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, kernel_size=5, stride=2, padding=2)
            for before, after in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(config.n_layers))
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(2 * config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Takes x [B, F, D] and mask [B, F, 1] of 0 and 1."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            mask = mask[:, ::2]
            convolved = convolution(x.transpose(1, 2)).transpose(1, 2)
            x = self.dropout(nn.functional.gelu(norm(convolved))) * mask
        average = x.sum(dim=1) / mask.sum(dim=1)
        return nn.functional.gelu(self.out(torch.cat([x[:, 0], average], dim=1)))


def frame_mask(n_frames: Tensor, length: int) -> Tensor:
    """Returns float32 [B, length, 1]: 1 for the frames that a note has; the first always counts."""
    steps = torch.arange(length, device=n_frames.device)
    return (steps[None, :] < n_frames.clamp(min=1)[:, None]).float()[:, :, None]


def _unit(x: Tensor) -> Tensor:
    """Returns the rows of [N, D], each at length 1."""
    return x / x.square().sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
