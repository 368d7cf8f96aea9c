"""How long, on what, and with which decoder designs are compared."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel_training.errors import ConfigError
from timbrel_training.optimization import AUTO, check_precision
from timbrel_training.settings import check_at_least


@dataclass(frozen=True)
class ComparisonConfig:
    """The same for every design of a comparison."""

    minutes: float = 20.0
    """Training of each codec: processor time of one thread, in minutes."""
    decoder_minutes: float = 10.0
    """Training of the note transformer on each codec's codes, likewise."""
    precision: str = AUTO
    """Of training, as `LoopConfig.precision`."""
    seed: int = 0
    """Of initial weights and batches."""
    batch_size: int = 12
    """Segments per step of the codec."""
    segment_seconds: float = 1.28
    """Length of a segment: an attack and its decay."""
    codec_learning_rate: float = 1e-3
    """Peak, for every codec (and its discriminator)."""
    decoder_learning_rate: float = 1e-3
    """Peak, for the note transformer."""
    n_training_notes: int = 1500
    """Notes that the note transformer is trained on, drawn once: coding all of a library would take longer
    than training."""
    n_held_out_notes: int = 200
    """Held-out notes that it is scored on."""
    note_seconds: float = 3.0
    """Where its notes are cut."""
    batch_seconds: float = 48.0
    """Audio per step of the note transformer: 16 notes, whatever the frame rate."""
    d_model: int = 128
    """Width of the note transformer."""
    n_encoder_layers: int = 1
    """Its layers over the condition."""
    n_decoder_layers: int = 3
    """Its layers over the tokens."""
    n_judged_notes: int = 100
    """Held-out notes whose reconstruction is measured."""

    def __post_init__(self) -> None:
        check_precision(self.precision)
        for name in ("minutes", "decoder_minutes", "segment_seconds", "note_seconds", "batch_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: {getattr(self, name)}, expected more than 0")
        check_at_least(self, batch_size=1, n_training_notes=1, n_held_out_notes=1, n_judged_notes=1)

    @property
    def budget(self) -> str:
        """Both times, as a folder is named."""
        return f"{self.minutes:g}+{self.decoder_minutes:g}min"
