"""Repeatable draws: a note's velocity and hold follow from what it is, never from the order of work."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError


class SourceError(TrainingError):
    """A source of notes cannot be read; the message is one line that says what to do."""


def is_printable(text: str) -> bool:
    """Tells whether a text can be shown, on one line: no bundle opens that holds anything else."""
    return all(letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text)


UNKNOWN_FAMILY = "Unknown"
"""The family of an instrument where nothing says one."""


def fold_name(name: str) -> str:
    """Returns what names of one instrument have in common: a bundle's map asks for no case, no blanks, and
    not whether accents are characters of their own."""
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def agreed_names(told: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Finds the name and the family of each instrument, by its folded name: the first spelling, and the first
    family that is one, among (instrument, family) as told note by note."""
    found: dict[str, tuple[str, str]] = {}
    for instrument, family in told:
        name, known = found.setdefault(fold_name(instrument), (instrument, family))
        if known == UNKNOWN_FAMILY:
            found[fold_name(instrument)] = (name, family)
    return found


@dataclass(frozen=True, eq=False)
class Note:
    """One sounding of an instrument. The key goes down at sample 0, or a few milliseconds later.

    A note whose sound has died away before the key is let go (a plucked string) is shorter than
    `held_seconds`.
    """

    audio: NDArray[np.float32]  # [samples], mono
    sample_rate: int  # Hz
    instrument: str
    family: str
    pitch: int  # MIDI note number
    velocity: int  # 1..127
    held_seconds: float  # from sample 0 until the key is let go
    source: str  # name of the source it came from
    cut: bool = False  # still sounding where the audio ends: its true length is unknown
    cell_digest: bytes = b""  # equal for two instruments that are one sound under two names; b"" if unknown

    @property
    def seconds(self) -> float:
        """Length of the audio, release included."""
        return len(self.audio) / self.sample_rate


class Source:
    """A finite, deterministic set of notes, in groups that can be made independently of each other.

    Sources are small and picklable: each worker process gets its own copy and opens files on first use.
    """

    name: str
    """Short name, kept with every note."""
    licence: str
    """That of the recordings; "unknown" where nothing says."""
    sample_rate: int
    """Rate in Hz that notes are wanted in; a note may come in another and is then resampled."""

    @property
    def licences(self) -> Mapping[str, str]:
        """Licence of the recordings by source name, for the manifest."""
        return {self.name: self.licence}

    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """Returns all that the notes depend on, as JSON values: equal settings give equal notes."""

    def check(self) -> None:
        """Looks, as far as is fast, whether all can be read that was not read when the source was opened.
        Raises SourceError: something cannot be."""

    @abstractmethod
    def groups(self) -> Sequence[str]:
        """Returns the names of the groups, in order."""

    @abstractmethod
    def notes(self, group: str) -> Iterator[Note]:
        """Yields the notes of one group, always the same ones in the same order."""

    def __iter__(self) -> Iterator[Note]:
        """Yields all notes, group by group."""
        for group in self.groups():
            yield from self.notes(group)


@dataclass(frozen=True)
class Draw:
    """The way one note of a cell is played."""

    velocity: int  # 1..127
    held_seconds: float
    onset: float  # in [0, 1): how far into the time allowed for it the key goes down


def unit_interval(*parts: object) -> float:
    """Returns a number in [0, 1) that only depends on `parts`: the leading 53 bits of their SHA-256."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def draw_note(instrument: str, pitch: int, index: int, min_held: float = 0.1, max_held: float = 4.0) -> Draw:
    """Draws number `index` of a cell: velocity and onset uniform, hold log-uniform in seconds."""
    velocity = 1 + int(127 * unit_interval("velocity", instrument, pitch, index))
    spread = unit_interval("held", instrument, pitch, index)
    onset = unit_interval("onset", instrument, pitch, index)
    return Draw(velocity, min_held * math.exp(spread * math.log(max_held / min_held)), onset)
