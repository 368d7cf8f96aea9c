"""What a codec is to the rest of timbrel: audio in, a small grid of integers out, and back."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class Codec(nn.Module):
    """Turns notes into codes and codes into audio.

    A codec works on mono audio at its own `sample_rate`; a frame of codes describes `hop_length` samples.
    `codes[b, t, q]` is the index that codebook `q` gives for frame `t`, in `0 .. codebook_size - 1`.
    """

    id: str
    sample_rate: int
    hop_length: int
    n_codebooks: int
    codebook_size: int
    latent_dim: int
    codes_per_semitone: int = 0
    """Of codebook 0 where it codes the fundamental, else 0."""
    code_offset: int = 0
    """Code - codes_per_semitone * pitch + code_offset is the middle of codebook 0 for a note in tune."""

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    def n_frames(self, n_samples: int) -> int:
        """Frames that cover `n_samples` samples; the last one may be padded with silence."""
        return (n_samples + self.hop_length - 1) // self.hop_length

    @abstractmethod
    def encode(self, audio: Tensor, pitch: Tensor | None = None) -> Tensor:
        """Codes of a batch of notes.

        Args:
            audio: float32 [B, S].
            pitch: float32 [B], MIDI note numbers where they are known: a hint that a codec may ignore.

        Returns:
            int64 [B, T, K] with T = n_frames(S).
        """

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Audio float32 [B, T * hop_length] of codes int64 [B, T, K], any streaming delay removed."""

    @abstractmethod
    def latents(self, codes: Tensor) -> Tensor:
        """What the codes stand for before decoding: float32 [B, T, latent_dim] of codes int64 [B, T, K]."""

    @abstractmethod
    def silence(self) -> Tensor:
        """The codes of one silent frame: int64 [K]."""


@torch.no_grad()
def encode_note(codec: Codec, audio: Tensor, pitch: float | None) -> Tensor:
    """Codes int64 [T, K] of one note float32 [S]."""
    hint = None if pitch is None else torch.tensor([pitch], dtype=torch.float32, device=audio.device)
    return codec.encode(audio[None], hint)[0]
