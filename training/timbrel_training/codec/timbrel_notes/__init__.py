"""timbrel's own codec for single instrument notes."""

from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig

__all__ = ["TimbrelNotes", "TimbrelNotesConfig"]
