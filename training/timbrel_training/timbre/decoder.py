"""Stage 1's decoder: what a note of this timbre sounds like, coarsely. It is thrown away after training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_training.timbre.encoder import frame_mask

SEGMENT_GROWTH = 1.6
"""Each segment of a note is this much longer than the one before: attacks change faster than tails."""


class TimbreDecoder(nn.Module):
    """A point, a pitch, a velocity and a hold to the mean latent of a few segments of the note.

    Segments, not frames: the map has to know a sound's colour and how it moves; the rest is noise to it.
    """

    edges: Tensor  # int64 [n_segments + 1], frames

    def __init__(self, latent_dim: int, n_frames: int, *, n_segments: int = 8, width: int = 256) -> None:
        super().__init__()
        self.n_frames = n_frames
        growth = torch.cat([torch.zeros(1), torch.cumsum(SEGMENT_GROWTH ** torch.arange(n_segments), 0)])
        edges = torch.round(growth / growth[-1] * n_frames).long()
        self.register_buffer("edges", torch.maximum(edges, torch.arange(n_segments + 1)), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 + 4 + 1 + 1, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, n_segments * latent_dim),
        )

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor, held_frames: Tensor) -> Tensor:
        """[B, n_segments, D].

        Args:
            timbre: float32 [B, 2].
            pitch: int64 [B], MIDI note number.
            velocity: int64 [B], 1..127.
            held_frames: int64 [B]; given, so that the map need not tell long notes from short ones.
        """
        octaves = (pitch.float() - 60.0) / 12.0
        waves = [octaves / 2.5, torch.sin(octaves), torch.cos(octaves), torch.sin(2 * octaves)]
        hold = held_frames.clamp(max=self.n_frames).float() / self.n_frames
        inputs = torch.stack([timbre[:, 0], timbre[:, 1], *waves, velocity.float() / 127.0, hold], dim=1)
        return self.layers(inputs).unflatten(1, (self.edges.shape[0] - 1, -1))

    def segments(self, latents: Tensor, n_frames: Tensor) -> tuple[Tensor, Tensor]:
        """The target: mean latents [B, n_segments, D]; and 1 where a segment has any [B, n_segments, 1]."""
        mask = frame_mask(n_frames, latents.shape[1])
        sums = _prefix(latents * mask)[:, self.edges]
        counts = _prefix(mask)[:, self.edges]
        totals, lengths = sums[:, 1:] - sums[:, :-1], counts[:, 1:] - counts[:, :-1]
        return totals / lengths.clamp(min=1.0), (lengths > 0).float()


def _prefix(x: Tensor) -> Tensor:
    """Sums of the first 0, 1, .. F frames: [B, F, D] -> [B, F + 1, D]."""
    return nn.functional.pad(x.cumsum(dim=1), (0, 0, 1, 0))
