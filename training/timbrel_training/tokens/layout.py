"""Which token ids there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenLayout:
    """Token ids of one codebook: the codes 0 .. codebook_size - 1, then BOS, then EOS."""

    n_codebooks: int
    codebook_size: int

    @property
    def bos_id(self) -> int:
        """What a codebook reads before its first code."""
        return self.codebook_size

    @property
    def eos_id(self) -> int:
        """What codebook 0 says after the last frame, and what every codebook reads from then on."""
        return self.codebook_size + 1

    @property
    def vocabulary_size(self) -> int:
        """Codes, BOS and EOS."""
        return self.codebook_size + 2

    def n_steps(self, n_frames: int) -> int:
        """Decoder steps of a whole note, the one that predicts EOS included."""
        return n_frames + max(self.n_codebooks - 1, 1)
