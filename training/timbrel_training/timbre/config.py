"""How stage 1 is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from timbrel_training.loop import LoopConfig
from timbrel_training.settings import check_at_least
from timbrel_training.timbre.encoder import TimbreEncoderConfig


@dataclass(frozen=True)
class TimbreTrainingConfig:
    """Stage 1: its encoder, its schedule, and the weight of each loss."""

    encoder: TimbreEncoderConfig = field(default_factory=TimbreEncoderConfig)
    """The part that is kept."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_size: int = 384
    """Notes; losses over pairs want several notes of each instrument in a batch."""
    reconstruction_weight: float = 0.3
    """Of the squared error of normalised segment means: near neighbours on the map should sound alike."""
    divergence_weight: float = 0.002
    """Of the KL term: keeps the Gaussians from shrinking to points."""
    disc_weight: float = 10.0
    """Of the penalty outside the unit disc; high, since the export clamps what is left."""
    attraction_weight: float = 2.0
    """Of d^2 within an instrument, rising as the square root of progress."""
    repulsion_weight: float = 20.0
    """Of the squared hinge between instruments, rising likewise; hinges are small numbers."""
    family_weight: float = 0.5
    """Of family classification, falling to 0: it lays out the map before instruments claim their places."""
    instrument_weight: float = 0.5
    """Of instrument classification, rising from 0."""
    adversary_weight: float = 0.02
    """Of pitch and velocity read through gradient reversal; more makes the map restless."""
    margin: float = 0.0
    """Distance from which on instruments leave each other alone; 0: 1.6 / sqrt(n_instruments)."""

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=2, margin=0)
