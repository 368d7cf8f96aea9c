"""One design's figures."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel_posttraining.codec_comparison.budget import Spent
from timbrel_posttraining.codec_comparison.predictability import Predictability
from timbrel_posttraining.codec_comparison.reconstruction import Reconstruction
from timbrel_posttraining.codec_comparison.usage import CodeUsage


@dataclass(frozen=True)
class Row:
    """A row of the report."""

    design: str
    """Its name."""
    about: str
    """What it is."""
    minutes: float
    """That the codec was trained for."""
    decoder_minutes: float
    """That the note transformer was trained for on its codes."""
    sample_rate: int
    """Hz."""
    frame_rate: float
    """Frames per second."""
    n_codebooks: int
    """Codes per frame."""
    codebook_size: int
    """Of each codebook."""
    parameters: int
    """Of the codec, without a discriminator."""
    spent: Spent
    """On the codec."""
    reconstruction: Reconstruction
    """Of held-out notes."""
    usage: CodeUsage
    """Over the notes that the note transformer was given."""
    predictability: Predictability
    """Of held-out notes."""

    @property
    def tokens_per_second(self) -> float:
        """Codes per second of audio, all codebooks together."""
        return self.frame_rate * self.n_codebooks
