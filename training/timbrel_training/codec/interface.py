"""The interface of every codec: audio in, a small grid of integers out, and back.

A kind of codec describes itself by a `CodecDesign`; `codec.registry` lists them. A finished codec is a folder
of two files, codec.safetensors and codec.json; the latter's "id" names its design.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description
from timbrel_training.errors import CheckpointError, TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.tokens.store import TokenStore

WEIGHTS_NAME = "codec"
"""Name of the weights, and of their description, in a codec's folder."""


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
    """Codes of codebook 0 per semitone where it codes the fundamental, else 0."""
    code_offset: int = 0
    """Code - codes_per_semitone * pitch + code_offset is the middle of codebook 0 for a note in tune."""
    delay_samples: int = 0
    """Samples by which a stream's audio lags behind its codes."""

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    def n_frames(self, n_samples: int) -> int:
        """Returns how many frames cover `n_samples` samples; the last one may be padded with silence."""
        return (n_samples + self.hop_length - 1) // self.hop_length

    @abstractmethod
    def encode(self, audio: Tensor, pitch: Tensor | None = None) -> Tensor:
        """Returns the codes of a batch of notes.

        Args:
            audio: float32 [B, S].
            pitch: float32 [B], MIDI note numbers where they are known: a hint that a codec may ignore.

        Returns:
            int64 [B, T, K] with T = n_frames(S).
        """

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Returns the audio float32 [B, T * hop_length] of codes int64 [B, T, K], any delay removed."""

    @abstractmethod
    def latents(self, codes: Tensor) -> Tensor:
        """Returns the vectors that codes stand for: float32 [B, T, latent_dim] of codes int64 [B, T, K]."""

    @abstractmethod
    def silence(self) -> Tensor:
        """Returns the codes of one silent frame: int64 [K]."""

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        """Returns the state of a stream of `n_batch` notes that begin: tensors [n_batch, ...] by name.

        A bundle's decoder is exported as a stream, its state under these names.

        Raises:
            TrainingError: the codec decodes whole notes only.
        """
        raise TrainingError(f"{self.id}: decodes whole notes only, and a bundle's codec has to stream")

    def decode_chunk(self, codes: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Decodes the next frames of a stream, for codecs that have an `initial_state`.

        Args:
            codes: int64 [B, T, K].
            state: left by the chunk before.

        Returns:
            Audio float32 [B, T * hop_length], `delay_samples` late, and the new state, its names in order.
        """
        raise TrainingError(f"{self.id}: decodes whole notes only, and a bundle's codec has to stream")


@dataclass(frozen=True)
class CodecDesign:
    """A kind of codec: how one is made from notes, made to sound better, and read from its folder."""

    id: str
    """Its name in the description of a codec's folder, and in a config as `codec.id`."""
    config: type[Any]
    """The dataclass of a config's section `codec`; one of its fields is the `device`."""
    train: Callable[[Any, NoteDataset, Path], Codec | None]
    """Makes a codec, or goes on making it: of its config, the notes and the folder to leave it in. Gives None
    where the sitting ended before the last step."""
    load: Callable[[Path], Codec]
    """Reads a finished codec from its folder, ready to use."""
    refine_config: type[Any] | None = None
    """The dataclass of a config's section `refine`, likewise; None where codecs are finished by `train`."""
    refine: Callable[[Any, Path, NoteDataset, TokenStore, Path], Codec | None] | None = None
    """Trains the decoder on while the codes stay: of its config, the finished codec's folder, the notes, the
    same notes as codes, and the folder for the refined codec. Gives None likewise."""


@torch.no_grad()
def encode_note(codec: Codec, audio: Tensor, pitch: float | None) -> Tensor:
    """Returns the codes int64 [T, K] of one note float32 [S]."""
    hint = None if pitch is None else torch.tensor([pitch], dtype=torch.float32, device=audio.device)
    return codec.encode(audio[None], hint)[0]


def describe_folder(folder: Path, design: str) -> dict[str, Any]:
    """Returns the description of the codec in `folder`, which has to be of this design.

    Raises:
        CheckpointError: nothing finished there, damaged, or of another design.
    """
    description = load_description(folder, WEIGHTS_NAME)
    if description.get("id") != design:
        raise CheckpointError(f"{folder}: holds codec {description.get('id')!r}, expected {design!r}")
    return description


def codec_hash(folder: Path) -> str:
    """Returns the finished codec's weights' SHA-256, in hex: codes of another training are other codes.

    Of a codec whose decoder was refined, that of the weights it was refined from: its codes are the same.
    """
    if origin := load_description(folder, WEIGHTS_NAME).get("codes_hash"):
        return str(origin)
    path = folder / f"{WEIGHTS_NAME}.safetensors"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read; train it first ({error.strerror})") from error
