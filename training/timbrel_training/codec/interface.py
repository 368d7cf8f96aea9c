"""The interface of every codec: audio in, a small grid of integers out, and back.

A kind of codec describes itself by a `CodecDesign`; `codec.registry` lists them. A finished codec is a folder
of two files, codec.safetensors and codec.json. The latter's "id" names its design, its "config" is what
`build` takes; "sources", where there are any, name what it was made of beside the notes, or learnt from
before these, with their licences.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor, nn

from timbrel_training.checkpoint import load_description
from timbrel_training.errors import CheckpointError, ConfigError, TrainingError
from timbrel_training.notes.dataset import NoteDataset

WEIGHTS_NAME = "codec"
"""Name of the weights, and of their description, in a codec's folder."""


MAX_CODEBOOK_SIZE = 65_536
"""Codes are kept, and travel, in two bytes."""

MAX_CENTS = 2400.0
"""Beyond so many, either way, a bend is held there."""


class Expression(NamedTuple):
    """Notes are played so, beside their codes; zeros play them as they were coded.

    A frame's cents and level are reached at its end, in a glide from where the frame before ended; a note's
    first frame begins with its own. A codec that does not bend ignores the cents.
    """

    seed: Tensor  # int64 [B], any: noise and start phases are functions of it alone
    cents: Tensor  # float32 [B, T], from the coded fundamental
    level_db: Tensor  # float32 [B, T], a gain; finite

    @classmethod
    def of(
        cls,
        codes: Tensor,
        seed: Tensor | None = None,
        cents: Tensor | None = None,
        level_db: Tensor | None = None,
    ) -> Expression:
        """Returns these, and zeros where they are None, for codes [B, T, K]."""
        shape, device = codes.shape[:2], codes.device
        # Tensors of their own: export would take one that stands for two inputs for the same.
        return cls(
            torch.zeros(shape[0], dtype=torch.int64, device=device) if seed is None else seed,
            torch.zeros(shape, device=device) if cents is None else cents,
            torch.zeros(shape, device=device) if level_db is None else level_db,
        )

    def held_on(self, n_frames: int) -> Expression:
        """Returns this with so many frames more, like the last."""
        return Expression(
            self.seed,
            *(torch.cat([x, x[:, -1:].expand(-1, n_frames)], dim=1) for x in (self.cents, self.level_db)),
        )


class KnownNote(NamedTuple):
    """A note of which more is known than its sound."""

    audio: Tensor
    """float32 [S]."""
    pitch: float | None
    """MIDI note number."""
    velocity: int
    held_seconds: float


class Codec(nn.Module):
    """Turns notes into codes and codes into audio.

    A codec works on mono audio at its own `sample_rate`; a frame of codes describes `hop_length` samples.
    `codes[b, t, q]` is the index that codebook `q` gives for frame `t`, in `0 .. codebook_size - 1`.
    """

    id: str
    """That of its design."""
    config: Any
    """The dataclass of its sizes, of plain data."""
    sample_rate: int
    hop_length: int
    n_codebooks: int
    codebook_size: int
    codes_per_semitone: int = 0
    """Codes of codebook 0 per semitone where it codes the fundamental, else 0."""
    code_offset: int = 0
    """Code - codes_per_semitone * pitch + code_offset is the middle of codebook 0 for a note in tune."""
    codebook_delay: int = 1
    """Frames by which a model writes each codebook behind the one before: 0 where none builds on another."""
    delay_samples: int = 0
    """Samples by which a stream's audio lags behind its codes."""
    lead_frames: int = 0
    """Frames at a note's start that hold no sound."""
    held_codes: Sequence[int] = ()
    """By codebook, how many of its codes, from 0 on, are said while the key is held and then alone: the rest
    says that it has gone up. 0, and where there are none: a codebook says nothing of the key."""
    released_codes: Sequence[int] = ()
    """By codebook, the code behind the last that a model writes once the key is up; codes of a real note may
    say more exactly than a gate when it went up. 0, and where there are none: all behind `held_codes`."""
    bends: bool = False
    """Whether the cents of an `Expression` do something."""
    moves: bool = False
    """Whether a later frame may say anew what a lead frame said, which is then reached within that frame: the
    n-th frame what the lead frame n modulo `lead_frames` did, in the codebooks that know `hold`."""
    search_steps: int = 0
    """Steps of a search, when a note is encoded, for codes that are truer to it than the encoder's first
    answer, in codecs that can search."""
    code_bases: Sequence[int] = ()
    """Of a codec that moves, CodecSpec's code_bases: `lead_frames` x `n_codebooks` entries."""
    hold: int | None = None
    """The code by which a codebook leaves what it said as it is; None where every code moves the sound."""

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    def n_frames(self, n_samples: int) -> int:
        """Returns how many frames, those before the sound included, `n_samples` samples take.

        The last one may be padded with silence.
        """
        return (n_samples + self.hop_length - 1) // self.hop_length + self.lead_frames

    def held_frames(self, seconds: float) -> int:
        """Returns the frames with the key down of a note that is heard to be held for so long."""
        return max(1, round(seconds * self.frame_rate)) + self.lead_frames

    @abstractmethod
    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        """Returns the codes, int64 [B, T, K] with T = n_frames(S), of a batch of notes, float32 [B, S].

        Pitches, MIDI note numbers, and for how many seconds keys were held, both float32 [B], are hints that
        a codec may ignore. Raises TrainingError: the audio is nothing that the codec can code.
        """

    def encode_alike(self, notes: Iterable[KnownNote]) -> list[Tensor]:
        """Returns the codes int64 [T, K] of each of some notes of one instrument. Where a codec has a choice,
        they are alike for notes that are near each other: a model learns that from few. Raises TrainingError:
        one of them is nothing that the codec can code."""
        return [encode_note(self, note.audio, note.pitch, note.held_seconds) for note in notes]

    def known_codes(self, dataset: NoteDataset, folder: Path) -> Mapping[int, NDArray[np.int64]]:
        """Returns the codes [T, K] of those notes of a dataset that need not be heard again, by number:
        training may have kept what it learnt of them in the codec's folder."""
        return {}

    def decode(
        self,
        codes: Tensor,
        seed: Tensor | None = None,
        cents: Tensor | None = None,
        level_db: Tensor | None = None,
    ) -> Tensor:
        """Returns the audio float32 [B, (T - lead_frames) * hop_length] of codes int64 [B, T, K], T >= 1.

        Any delay is removed. The other arguments are those of an `Expression`, by default zeros.

        Raises:
            TrainingError: it has cents, and the codec does not bend.
        """
        self.check_cents(cents)
        n_flush = -(-self.delay_samples // self.hop_length)
        silence = self.silence().expand(codes.shape[0], n_flush, -1)
        expression = Expression.of(codes, seed, cents, level_db).held_on(n_flush)
        flushed = torch.cat([codes, silence], dim=1)
        audio, _ = self.decode_chunk(flushed, expression, self.initial_state(codes.shape[0]))
        first = self.lead_frames * self.hop_length + self.delay_samples
        return audio[:, first : self.delay_samples + codes.shape[1] * self.hop_length]

    def check_cents(self, cents: Tensor | None) -> None:
        """Raises TrainingError where these bend notes, and the codec does not."""
        if cents is not None and not self.bends and bool(cents.any()):
            raise TrainingError(f"{self.id}: does not bend notes; leave the cents at 0")

    def gain(self, level_db: Tensor | None, before: Tensor | None = None) -> Tensor | float:
        """Returns what to multiply audio [B, T * hop_length] with for levels [B, T] in dB; None: 1.

        `before` [B, T] are the levels at which the frames begin; by default a note begins with them.
        """
        if level_db is None:
            return 1.0
        if before is None:
            before = torch.cat([level_db[:, :1], level_db[:, :-1]], dim=1)
        share = torch.arange(1, self.hop_length + 1, device=level_db.device) / self.hop_length
        level = before[:, :, None] + (level_db - before)[:, :, None] * share
        return torch.pow(10.0, level.flatten(1) / 20)

    @abstractmethod
    def silence(self) -> Tensor:
        """Returns the codes of one silent frame: int64 [K]."""

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        """Returns the state of a stream of `n_batch` notes that begin: tensors [n_batch, ...] by name.

        A bundle's decoder is exported as a stream, its state under these names. Raises TrainingError: the
        codec decodes whole notes only.
        """
        raise TrainingError(f"{self.id}: decodes whole notes only, and a bundle's codec has to stream")

    def decode_chunk(
        self, codes: Tensor, expression: Expression, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Decodes the next frames, int64 [B, T, K], of a stream, for codecs that have an `initial_state`.

        The expression's seed stays that of the note. Returns audio float32 [B, T * hop_length],
        `delay_samples` late, that of a note's `lead_frames` without meaning, and the new state, its names in
        order.
        """
        raise TrainingError(f"{self.id}: decodes whole notes only, and a bundle's codec has to stream")


@dataclass(frozen=True)
class CodecDesign:
    """A kind of codec: how one is made from notes, and made again from its folder or a bundle."""

    id: str
    """Its name in the description of a codec's folder, and in a config as `codec.id`."""
    config: type[Any]
    """The dataclass of a config's section `codec`; one of its fields is the `device`."""
    train: Callable[[Any, NoteDataset, Path], Codec | None]
    """Makes a codec, or goes on making it: of its config, the notes and the folder to leave it in. Gives None
    where the sitting ended before the last step."""
    build: Callable[[dict[str, Any]], Codec]
    """Makes one without its weights, of its `config` as plain data."""


@torch.no_grad()
def encode_note(
    codec: Codec, audio: Tensor, pitch: float | None, held_seconds: float | None = None
) -> Tensor:
    """Returns the codes int64 [T, K] of one note float32 [S], of what is known of it."""
    hints = (
        None if hint is None else torch.tensor([hint], dtype=torch.float32, device=audio.device)
        for hint in (pitch, held_seconds)
    )
    return codec.encode(audio[None], *hints)[0]


CODES_OF = "codes_of"
"""In the description of a codec of which only what decodes was trained on: the hash of the one before."""


def codes_hash(folder: Path) -> str:
    """Returns the hash of the codec whose codes these are: the finished one's own, or that of the one before
    it. Raises CheckpointError: none is finished there."""
    return str(load_description(folder, WEIGHTS_NAME).get(CODES_OF) or codec_hash(folder))


CODES_LIKE = "codes_like"
"""In the description of a codec that began from another: the hashes of all before it, as they were trained
and as a bundle gives them back."""


def codes_like(folder: Path) -> tuple[str, ...]:
    """Returns the hashes of the codecs that a finished one began from, the last first: its codes mean about
    the same. Raises CheckpointError: none is finished there, or its description is damaged."""
    found = load_description(folder, WEIGHTS_NAME).get(CODES_LIKE, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise CheckpointError(
            f"{folder}: {CODES_LIKE} of its description is no list of hashes; train it again"
        )
    return tuple(found)


def codec_hash(folder: Path) -> str:
    """Returns the finished codec's weights' SHA-256, in hex: codes of another training are other codes.
    Raises CheckpointError: none is finished there."""
    path = folder / f"{WEIGHTS_NAME}.safetensors"
    try:
        return file_hash(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read; train it first ({error.strerror})") from error


def unpacked_hash(folder: Path) -> str:
    """Returns the `codec_hash` that the codec of a folder has once a bundle held it: `timbrel train unpack`
    gives it back with its weights rounded to 16 bits."""
    weights = load_file(folder / f"{WEIGHTS_NAME}.safetensors")
    for name, each in weights.items():
        weights[name] = each.half().to(each.dtype) if each.is_floating_point() else each
    return hashlib.sha256(save(weights)).hexdigest()


def file_hash(path: Path) -> str:
    """Returns a file's SHA-256, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sample_rate(dataset: NoteDataset, sample_rate: int) -> None:
    """Raises ConfigError where notes are not at a codec's rate."""
    if dataset.sample_rate != sample_rate:
        raise ConfigError(
            f"{dataset.path}: at {dataset.sample_rate} Hz, but this codec works at {sample_rate} Hz;"
            " render the notes at that rate (notes.sample_rate)"
        )
