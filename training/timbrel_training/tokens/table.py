"""Tokenised notes as plain arrays that stages 1 and 2 draw their batches from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.notes.split import Split
from timbrel_training.tokens.store import ROW, StoreError, TokenHeader, aligned, read_document


@dataclass(frozen=True, eq=False)
class TokenTable:
    """N notes of M instruments; `F` frames of all notes lie one after the other."""

    codes: NDArray[np.uint16]  # [F, K]
    offsets: NDArray[np.int64]  # [N + 1], where each note's frames start
    instrument: NDArray[np.int64]  # [N], index into `instruments`
    source: NDArray[np.int64]  # [N], index into `sources`
    pitch: NDArray[np.int64]  # [N], MIDI note number
    velocity: NDArray[np.int64]  # [N], 1..127
    held_frames: NDArray[np.int64]  # [N]
    cut: NDArray[np.bool_]  # [N], still sounding where the recording ends: the true length is unknown
    split: NDArray[np.int64]  # [N], see notes.split.Split
    instruments: tuple[str, ...]  # [M]
    families: tuple[str, ...]  # [M], of each instrument
    header: TokenHeader
    sources: tuple[str, ...] = ()  # names of the notes' sources
    notes_hash: str = ""  # SHA-256, in hex, of all of a store but the codes; empty: unknown

    @classmethod
    def read(cls, path: Path) -> TokenTable:
        """Opens a token store, whose codes stay in the file. Raises StoreError: it is missing, not a token
        store, of another version, truncated or damaged."""
        document, start = read_document(path)
        try:
            header = TokenHeader(**document["codec"])
            instruments = [(str(name), str(family)) for name, family in document["instruments"]]
            sources = tuple(str(name) for name in document["sources"])
            n_notes, n_frames = int(document["n_notes"]), int(document["n_frames"])
            if min(header.sample_rate, header.hop_length, header.n_codebooks, header.codebook_size) < 1:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise StoreError(f"{path}: the header is damaged; tokenise the notes again") from None
        codes_at = aligned(start + n_notes * ROW.itemsize)
        size, expected = path.stat().st_size, codes_at + 2 * n_frames * header.n_codebooks
        if size != expected:
            what = "truncated" if size < expected else "damaged (trailing bytes)"
            raise StoreError(f"{path}: {what}, {size} bytes where the header says {expected}; tokenise again")
        with path.open("rb") as file:
            facts = file.read(codes_at)
        index = np.frombuffer(facts, ROW, n_notes, start)
        columns = ("instrument", "source", "pitch", "velocity", "held_frames", "split")
        shape = n_frames, header.n_codebooks
        codes = np.memmap(path, "<u2", "r", codes_at, shape) if n_frames else np.zeros(shape, np.uint16)
        offsets = np.append(index["offset"], np.int64(n_frames))
        sizes = {"instrument": len(instruments), "source": len(sources), "pitch": 128, "split": len(Split)}
        if not (
            offsets[0] == 0
            and (np.diff(offsets) == index["n_frames"]).all()
            and all(((index[name] >= 0) & (index[name] < size)).all() for name, size in sizes.items())
            and codes.max(initial=0) < header.codebook_size
        ):
            raise StoreError(f"{path}: damaged, it holds notes that cannot be; tokenise again")
        return cls(
            codes=codes,
            offsets=offsets,
            cut=index["cut"] != 0,
            instruments=tuple(name for name, _ in instruments),
            families=tuple(family for _, family in instruments),
            header=header,
            sources=sources,
            notes_hash=hashlib.sha256(facts).hexdigest(),
            **{name: index[name].astype(np.int64) for name in columns},
        )

    @property
    def n_notes(self) -> int:
        """N."""
        return len(self.pitch)

    @property
    def n_frames(self) -> NDArray[np.int64]:
        """Length of each note in frames, int64 [N]."""
        return np.diff(self.offsets)

    def note(self, index: int) -> NDArray[np.uint16]:
        """Returns the codes [T, K] of one note: a view."""
        return self.codes[self.offsets[index] : self.offsets[index + 1]]

    def of_split(self, split: Split) -> NDArray[np.int64]:
        """Returns the indices of the notes that belong to `split`."""
        return np.flatnonzero(self.split == int(split))


def require_training_notes(table: TokenTable) -> None:
    """Raises TrainingError where there is nothing to train on."""
    if len(table.of_split(Split.TRAIN)) == 0:
        raise TrainingError(f"no training notes among the {table.n_notes} of the token store")
