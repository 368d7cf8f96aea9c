"""timbrel's own codec for single instrument notes."""

from timbrel_training.codec.interface import CodecDesign
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, build_codec, train_codec

__all__ = ["DESIGN", "TimbrelNotes", "TimbrelNotesConfig"]

DESIGN = CodecDesign(TimbrelNotes.id, CodecTrainingConfig, train_codec, build_codec)
