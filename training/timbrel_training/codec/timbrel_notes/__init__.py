"""timbrel's own codec for single instrument notes."""

from timbrel_training.codec.interface import CodecDesign
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.parameter_codec import ParameterCodec
from timbrel_training.codec.timbrel_notes.parameter_training import (
    ParameterCodecTrainingConfig,
    build_parameter_codec,
    load_parameter_codec,
    train_parameter_codec,
)
from timbrel_training.codec.timbrel_notes.refine import RefiningConfig, refine_codec
from timbrel_training.codec.timbrel_notes.train import CodecTrainingConfig, load_codec, train_codec

__all__ = ["DESIGN", "NEXT_DESIGN", "TimbrelNotes", "TimbrelNotesConfig"]

DESIGN = CodecDesign(
    TimbrelNotes.id,
    CodecTrainingConfig,
    train_codec,
    load_codec,
    refine_config=RefiningConfig,
    refine=refine_codec,
)
NEXT_DESIGN = CodecDesign(
    ParameterCodec.id,
    ParameterCodecTrainingConfig,
    train_parameter_codec,
    load_parameter_codec,
    build_parameter_codec,
)
"""Its successor: notes as measured parameters. It trains and codes; it has no encoder's graph as yet, which a
bundle needs."""
