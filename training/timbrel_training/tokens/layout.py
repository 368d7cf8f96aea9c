"""Which token ids there are, and how codes become tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenLayout:
    """Token ids of one codebook: the codes 0 .. codebook_size - 1, then BOS, then EOS.

    Where the codec codes a note's fundamental in codebook 0, its tokens are relative to the pitch asked: then
    a note in tune has the same tokens at every pitch, and what is learnt at one serves all. The others'
    tokens are their codes.
    """

    n_codebooks: int
    codebook_size: int
    codes_per_semitone: int = 0
    """Of codebook 0; 0 where it does not code the fundamental."""
    code_offset: int = 0
    """Token of codebook 0 = code - codes_per_semitone * pitch + code_offset."""

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

    def to_tokens(self, codes: NDArray[np.integer], pitch: int) -> NDArray[np.int64]:
        """Tokens int64 [T, K] of a note's codes [T, K]; `pitch` is its MIDI note number."""
        return self._shifted(codes, -self.code_shift(pitch))

    def to_codes(self, tokens: NDArray[np.integer], pitch: int) -> NDArray[np.uint16]:
        """Codes uint16 [T, K] of a note's tokens [T, K], none of them BOS or EOS."""
        return self._shifted(tokens, self.code_shift(pitch)).astype(np.uint16)

    def code_shift(self, pitch: int) -> int:
        """What is added to a token of codebook 0 to have its code."""
        return self.codes_per_semitone * pitch - self.code_offset

    def _shifted(self, values: NDArray[np.integer], shift: int) -> NDArray[np.int64]:
        shifted = values.astype(np.int64)
        shifted[:, 0] = np.clip(shifted[:, 0] + shift, 0, self.codebook_size - 1)
        return shifted
