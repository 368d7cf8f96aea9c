"""Stage 1: the timbre map. A variational encoder from codec latents to a point in the unit disc."""

from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig

__all__ = ["TimbreEncoder", "TimbreEncoderConfig"]
