"""The training of stage 1: its config, its batches, and the loss by which instruments are told."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from timbrel_training.loop import LoopConfig
from timbrel_training.settings import check_at_least, check_shares
from timbrel_training.timbre.encoder import SHARPNESS, TimbreEncoder, TimbreEncoderConfig


@dataclass(frozen=True)
class TimbreTrainingConfig:
    """Stage 1: its encoder, its schedule, and what it hears."""

    encoder: TimbreEncoderConfig = field(default_factory=TimbreEncoderConfig)
    """The part that is kept."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_size: int = 384
    """Notes."""
    recorded_notes: int = 12_000
    """Training notes heard once more as recordings: in rooms, as MP3, out of tune (`recordings.py`)."""
    recorded_share: float = 0.5
    """Share of a batch's notes that is drawn from those; the others are clean."""
    disturbed_share: float = 0.5
    """Share of these and of foreign sounds that a random microphone's colour and noise are put on, drawn anew
    each time."""
    foreign_sounds: int = 3_000
    """Sounds that are no note of an instrument (`foreign.py`), from which notes are told."""
    foreign_share: float = 0.125
    """So many of them in a batch, as a share of its notes."""
    shift_bands: int = 2
    """A note's spectrum is moved by up to so many bands either way, at random: so that none is known by its
    pitch, and the map finds an instrument at pitches that it was not trained on too."""
    margin: float = 0.0
    """Distance to which instruments are laid apart on the map; 0: 1.6 / sqrt(n_instruments)."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, margin=0, shift_bands=0, recorded_notes=1, foreign_sounds=10)
        check_shares(self, "recorded_share", "disturbed_share", "foreign_share")

    def margin_of(self, n_instruments: int) -> float:
        """Returns how far apart so many instruments are laid: by default as far as the disc has room."""
        return self.margin or 1.6 / max(n_instruments, 1) ** 0.5


@dataclass(frozen=True)
class TimbreBatch:
    """A batch of sounds' starts."""

    levels: Tensor  # float32 [B, F, n_bands], in dB
    n_frames: Tensor  # int64 [B]
    instrument: Tensor  # int64 [B]; of foreign sounds the number of instruments


class Recognition(nn.Module):
    """The encoder, and how near a sound has to be to any instrument to be one of them."""

    def __init__(self, encoder: TimbreEncoder, nearness: float = 0.5) -> None:
        super().__init__()
        self.encoder = encoder
        self.nearness = nn.Parameter(torch.tensor(nearness))
        """The cosine below which a sound is none of them."""

    def logits(self, embedding: Tensor) -> Tensor:
        """Returns logits [B, n_instruments + 1] of embeddings [B, embedding_width]; the last one is none."""
        cosines = self.encoder.cosines(embedding)
        return SHARPNESS * torch.cat([cosines, self.nearness.expand(len(cosines), 1)], dim=1)

    def loss(self, batch: TimbreBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the cross entropy of naming the batch's sounds, which is all that is learnt."""
        logits = self.logits(self.encoder.hear(batch.levels, batch.n_frames))
        name = nn.functional.cross_entropy(logits, batch.instrument)
        return name, {"name": name}
