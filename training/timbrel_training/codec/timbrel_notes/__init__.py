"""timbrel's own codec for single instrument notes."""

from timbrel_training.codec.interface import CodecDesign
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.refine import RefiningConfig, refine_codec
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, load_codec, train_codec

__all__ = ["DESIGN", "TimbrelNotes", "TimbrelNotesConfig"]

DESIGN = CodecDesign(
    TimbrelNotes.id, CodecTrainingConfig, train_codec, load_codec, RefiningConfig, refine_codec
)
