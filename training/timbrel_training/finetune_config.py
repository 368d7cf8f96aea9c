"""How fine-tuning is done."""

from __future__ import annotations

from dataclasses import dataclass, field

from timbrel_training.errors import ConfigError
from timbrel_training.note_training.config import NoteTrainingConfig
from timbrel_training.settings import check_at_least


@dataclass(frozen=True)
class FineTuneConfig:
    """New notes beside rehearsed ones; the schedule is that of stage 2, shorter and slower."""

    training: NoteTrainingConfig = field(default_factory=NoteTrainingConfig)
    """Steps, rates and batches."""
    sample_share: float = 0.4
    """Share of a batch, and of the loss, that is new samples; the rest is rehearsal of what is known."""
    rehearsal_weight: float = 5.0
    """Of the divergence from the old model: what is little at each step is much in a note."""
    rehearsal_notes: int = 8
    """Notes rehearsed for each old instrument, spread over its pitches."""
    between_notes: int = 64
    """Notes rehearsed at random points of the disc, so that the space between instruments stays playable."""
    rehearsal_top_p: float = 0.95
    """Probability mass kept when rehearsal notes are written, as servers do by default."""
    onset_variants: int = 2
    """Times that each sample is coded, its onset moved by fractions of a frame: so few samples are learnt as
    sounds rather than by heart."""
    semitones: int = 2
    """How far a sample is repitched, by playing it faster or slower as samplers do, to pitches that its
    instrument has no sample of: what lies between samples is learnt too. 0: not at all."""
    cell_fraction: float = 0.1
    """Share of the samples' pitches that is held out, to see whether the model learns more than them."""
    distance: float = 0.5
    """Least distance of a new instrument from any other, in median distances between neighbours. Training
    moves points by noise of half as much: nearer than this two instruments would blur into one."""

    def __post_init__(self) -> None:
        if not 0.0 < self.sample_share < 1.0:
            raise ConfigError(f"sample_share: {self.sample_share}, expected above 0 and below 1")
        if not 0.0 < self.rehearsal_top_p <= 1.0:
            raise ConfigError(f"rehearsal_top_p: {self.rehearsal_top_p}, expected above 0 and up to 1")
        if not 0.0 <= self.cell_fraction < 1.0:
            raise ConfigError(f"cell_fraction: {self.cell_fraction}, expected at least 0 and below 1")
        check_at_least(self, onset_variants=1, semitones=0, rehearsal_weight=0)
        check_at_least(self, rehearsal_notes=0, between_notes=0, distance=0)
