"""Stage 2: the encoder-decoder Transformer that writes notes."""

from timbrel_training.model.config import ModelConfig, ModelConfigError, without_former
from timbrel_training.model.transformer import NoteTransformer

__all__ = ["ModelConfig", "ModelConfigError", "NoteTransformer", "without_former"]
