"""Tokenised notes in memory, as plain arrays that stages 1 and 2 draw their batches from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.notes.split import Split
from timbrel_training.tokens.store import TokenHeader, TokenStore


@dataclass(frozen=True, eq=False)
class TokenTable:
    """N notes of M instruments; `F` frames of all notes lie one after the other."""

    codes: NDArray[np.uint16]  # [F, K]
    offsets: NDArray[np.int64]  # [N + 1], where each note's frames start
    instrument: NDArray[np.int64]  # [N], index into `instruments`
    pitch: NDArray[np.int64]  # [N], MIDI note number
    velocity: NDArray[np.int64]  # [N], 1..127
    held_frames: NDArray[np.int64]  # [N]
    cut: NDArray[np.bool_]  # [N], still sounding where the recording ends: the true length is unknown
    split: NDArray[np.int64]  # [N], see notes.split.Split
    instruments: tuple[str, ...]  # [M]
    families: tuple[str, ...]  # [M], of each instrument
    header: TokenHeader
    sources: tuple[str, ...] = ()  # names of the notes' sources
    notes_hash: str = ""  # of the notes that a store holds; empty: unknown. See TokenStore.notes_hash

    @classmethod
    def read(cls, path: Path) -> TokenTable:
        """Reads all of a token store into memory. Raises TrainingError: it is missing or damaged."""
        store = TokenStore(path)
        columns = ("offsets", "instrument", "pitch", "velocity", "held_frames", "cut", "split")
        return cls(
            codes=np.array(store.codes),
            instruments=tuple(name for name, _ in store.instruments),
            families=tuple(family for _, family in store.instruments),
            header=store.header,
            sources=tuple(store.sources),
            notes_hash=store.notes_hash,
            **{name: getattr(store, name) for name in columns},
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
