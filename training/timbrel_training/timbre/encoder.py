"""The timbre encoder: it hears a note, compares it with the instruments, and returns a point among them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.errors import ConfigError
from timbrel_training.settings import check_at_least
from timbrel_training.timbre.log_mel import SILENCE_DB, LogMel

MOST_LAYERS = 8
"""Layers double their channels: more of them fit no memory."""


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
    n_channels: int = 16
    """Channels of the first layer; each further one has twice as many."""
    n_layers: int = 4
    """Layers, which halve frames and bands each."""
    width: int = 128
    """Numbers by which a frame of the last layer, and then the note, is described."""
    embedding_width: int = 64
    """Numbers by which a note is compared with each instrument: two, its point, tell too few apart."""
    dropout: float = 0.1
    """Share of channels hidden in training; a few thousand notes are soon learned by heart."""

    def __post_init__(self) -> None:
        if not 0 <= self.lowest_hertz < self.highest_hertz:
            raise ConfigError(f"lowest_hertz: {self.lowest_hertz}, expected 0 up to highest_hertz")
        if self.n_layers > MOST_LAYERS:
            raise ConfigError(f"n_layers: {self.n_layers}, expected at most {MOST_LAYERS}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: {self.dropout}, expected at least 0 and below 1")
        check_at_least(self, frame_rate=1, n_frames=1, n_bands=1, range_db=1, embedding_width=1)
        check_at_least(self, width=1, n_layers=1, n_channels=1)


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
        self.trunk = ResidualTrunk(config)
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


class ResidualTrunk(nn.Module):
    """Convolutions over frames and bands, then a mean over the note: [B, F, n_bands] -> [B, width].

    Partials are the same picture wherever they lie: what is learnt of an instrument at one pitch, in one room
    or by one player is known at others sooner than by convolutions over frames alone, to which each band is
    a feature of its own. Layers are residual (He et al., 2016), and know how high they look (Liu et al.,
    "CoordConv", 2018): formants stay where they are.
    """

    heights: Tensor  # [n_bands], from -1 to 1

    def __init__(self, config: TimbreEncoderConfig) -> None:
        super().__init__()
        channels = [2, *(config.n_channels * 2**layer for layer in range(config.n_layers))]
        height = config.n_bands
        for _ in range(config.n_layers):
            height = (height + 1) // 2
        self.halving = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1)
            for before, after in itertools.pairwise(channels)
        )
        self.halved = nn.ModuleList(nn.LayerNorm(width) for width in channels[1:])
        self.refining = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for width in channels[2:])
        self.refined = nn.ModuleList(nn.LayerNorm(width) for width in channels[2:])
        self.dropout = nn.Dropout(config.dropout)
        self.frame = nn.Linear(channels[-1] * height, config.width)
        self.out = nn.Linear(2 * config.width, config.width)
        self.register_buffer("heights", torch.linspace(-1.0, 1.0, config.n_bands), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Takes x [B, F, n_bands] and mask [B, F, 1] of 0 and 1."""
        x = torch.stack([x, self.heights * mask], dim=1)
        mask = mask[:, None]  # [B, 1, F, 1]
        for layer, (convolution, norm) in enumerate(zip(self.halving, self.halved, strict=True)):
            mask = mask[:, :, ::2]
            x = _convolved(convolution, norm, x) * mask
            if layer:
                x = x + _convolved(self.refining[layer - 1], self.refined[layer - 1], x) * mask
        frames = self.dropout(x.transpose(1, 2).flatten(2))  # [B, F, channels * height]
        mask = mask[:, 0]
        frames = self.dropout(nn.functional.gelu(self.frame(frames))) * mask
        average = frames.sum(dim=1) / mask.sum(dim=1)
        return nn.functional.gelu(self.out(torch.cat([frames[:, 0], average], dim=1)))


def _convolved(convolution: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    """Returns [B, C', F', M'] of [B, C, F, M], each place's channels normalised."""
    return nn.functional.gelu(norm(convolution(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def frame_mask(n_frames: Tensor, length: int) -> Tensor:
    """Returns float32 [B, length, 1]: 1 for the frames that a note has; the first always counts."""
    steps = torch.arange(length, device=n_frames.device)
    return (steps[None, :] < n_frames.clamp(min=1)[:, None]).float()[:, :, None]


def _unit(x: Tensor) -> Tensor:
    """Returns the rows of [N, D], each at length 1."""
    return x / x.square().sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
