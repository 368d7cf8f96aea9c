"""How stage 2 is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from timbrel_training.loop import LoopConfig
from timbrel_training.settings import check_at_least, check_shares


@dataclass(frozen=True)
class NoteTrainingConfig:
    """Stage 2: its schedule, its batches, and how notes are conditioned."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_steps: int = 6144
    """Decoder steps per batch, padding included: about 50 notes."""
    centroid_share: float = 0.5
    """Share of notes conditioned on their instrument's point; the others are on their own."""
    noise_fraction: float = 0.25
    """Standard deviation of the noise on points, as a share of the distance from the note's instrument to its
    nearest neighbour; of the median of these distances at most."""
    input_corruption: float = 0.0
    """Share of input codes replaced by random ones: a model that writes reads its own mistakes."""
    validation_notes: int = 400
    """Held-out notes scored at each validation, and as many training notes beside them."""

    def __post_init__(self) -> None:
        check_shares(self, "centroid_share", "input_corruption")
        check_at_least(self, batch_steps=1)
