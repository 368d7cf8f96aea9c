"""The config sections of the stages that go on from a finished bundle: one TOML file holds all sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from timbrel_training.errors import ConfigError
from timbrel_training.loop import LoopConfig
from timbrel_training.note_training.train import NoteTrainingConfig
from timbrel_training.settings import check_at_least, check_shares


@dataclass(frozen=True)
class FineTuneConfig:
    """The section `finetune`: new notes beside rehearsed ones, on stage 2's schedule, shorter and slower."""

    training: NoteTrainingConfig = field(default_factory=NoteTrainingConfig)
    """Steps, rates and batches."""
    sample_share: float = 0.4
    """Share of a batch, and of the loss, that is new samples; the rest is rehearsal of what is known."""
    rehearsal_weight: float = 5.0
    """Weight of the divergence from the old model: what is little at each step is much in a note."""
    rehearsal_notes: int = 8
    """Notes rehearsed for each old instrument, spread over its pitches."""
    near_notes: int = 56
    """Notes more for each old instrument near a new one, by which it would be ousted."""
    between_notes: int = 64
    """Notes rehearsed at random points of the disc, so that the space between instruments stays playable."""
    rehearsal_top_p: float = 0.95
    """Probability mass kept when rehearsal notes are written, as servers do by default."""
    search_steps: int = 200
    """Steps of the search for each sample's codes, where the codec can search: a codec's encoder knows sounds
    like those of its training, and samples may be like none of them."""
    onset_variants: int = 1
    """Times that each sample is coded, its onset moved by fractions of a frame: so few samples are learnt as
    sounds rather than by heart. A codec that knows where a note begins wants 1: others blur its attack."""
    semitones: int = 2
    """Reach of repitching a sample, by playing it faster or slower as samplers do, to pitches that its
    instrument has no sample of: what lies between samples is learnt too. 0: not at all."""
    cell_fraction: float = 0.1
    """Share of the samples' pitches that is held out, to see whether the model learns more than them."""
    distance: float = 0.8
    """Least distance of a new instrument from any other, in median distances between neighbours. At
    0.5 the nearest old instrument gave way to the new one."""

    def __post_init__(self) -> None:
        if not 0.0 < self.sample_share < 1.0:
            raise ConfigError(f"sample_share: {self.sample_share}, expected above 0 and below 1")
        if not 0.0 < self.rehearsal_top_p <= 1.0:
            raise ConfigError(f"rehearsal_top_p: {self.rehearsal_top_p}, expected above 0 and up to 1")
        if not 0.0 <= self.cell_fraction < 1.0:
            raise ConfigError(f"cell_fraction: {self.cell_fraction}, expected at least 0 and below 1")
        check_at_least(self, onset_variants=1, semitones=0, rehearsal_weight=0)
        check_at_least(self, rehearsal_notes=0, near_notes=0, between_notes=0, distance=0, search_steps=0)


@dataclass(frozen=True)
class TimbreFinetuneConfig:
    """The section `hearing`: the timbre encoder's second training, on what `locate` hears."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rates."""
    batch_size: int = 256
    """Notes."""
    source_notes: int = 6000
    """Source notes of training cells, shared evenly among the instruments."""
    own_notes: int = 6000
    """Notes that the bundle writes at its instruments' points, shared alike."""
    between_notes: int = 2000
    """Notes that it writes between them, whose place is the point asked: the map stays even there."""
    other_notes: int = 9000
    """Notes of other libraries, shared by the square root of how many each source has, and evenly among its
    instruments: one that is known from one soundfont alone is known by that font's first milliseconds."""
    between_distance: float = 0.5
    """Distance that those keep from every point, in median distances between neighbouring instruments: twice
    the noise that stage 2 was trained with."""
    cut_share: float = 0.15
    """Share of notes that begin a little late, or end too early, as recordings do."""
    recorded_share: float = 0.4
    """Share of notes that are heard as recordings have them: in rooms, as MP3, out of tune."""
    disturbed_share: float = 0.4
    """Share of a batch that a random microphone's colour and noise are put on, drawn anew each time."""
    begun_share: float = 0.4
    """Share of a batch that begins late, behind the noise of a room, or softly, drawn anew each time."""
    foreign_sounds: int = 3000
    """Sounds that are no note of an instrument, from which notes are told."""
    foreign_share: float = 0.125
    """So many of them in a batch, as a share of its notes."""
    source_share: float = 0.4
    """Share of a batch that is source notes."""
    between_share: float = 0.1
    """Share of a batch that is notes from between instruments; the rest are at their points."""
    other_share: float = 0.35
    """Share of a batch that is notes of other libraries, where there are any."""
    crop_share: float = 0.25
    """Share of a batch of which only the first frames are shown, random many."""
    pull_weight: float = 0.5
    """Weight of the distance from the point that is asked for, beside that of telling the instrument."""
    validation_share: float = 0.1
    """Share of the notes kept back, to see whether the encoder learns more than them."""

    def __post_init__(self) -> None:
        names = (
            "cut_share",
            "crop_share",
            "recorded_share",
            "disturbed_share",
            "foreign_share",
            "other_share",
            "begun_share",
            "source_share",
            "between_share",
        )
        check_shares(self, *names)
        if not 0.0 < self.source_share + self.between_share < 1.0:
            raise ConfigError("source_share and between_share: expected above 0 and below 1 together")
        if not 0.0 <= self.validation_share < 1.0:
            raise ConfigError(f"validation_share: {self.validation_share}, expected at least 0 and below 1")
        check_at_least(self, source_notes=1, own_notes=1, batch_size=1, between_notes=0, between_distance=0)
        check_at_least(self, other_notes=0)
        check_at_least(self, pull_weight=0, foreign_sounds=10)
