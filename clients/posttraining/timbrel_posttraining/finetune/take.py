"""The takes of a recording: how often, at which pitches and from which onset it is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import FineTuneConfig


@dataclass(frozen=True)
class Take:
    """One recording as it is once learnt."""

    row: int
    """Which note of the library."""
    semitones: int
    """By how much it is repitched."""
    delay: float
    """How late it begins, as a fraction of a codec's frame."""

    @property
    def speed(self) -> float:
        """How fast it is played: 1 as recorded."""
        return float(2.0 ** (self.semitones / 12))

    def audio(self, library: NoteDataset, hop_length: int) -> NDArray[np.float32]:
        """The take's audio [samples] at the library's rate; a frame has `hop_length` samples."""
        audio = library.audio(self.row)
        if self.semitones:
            rate = float(library.sample_rate)
            audio = soxr.resample(audio, rate * self.speed, rate, quality="HQ").astype(np.float32)
        return np.concatenate([np.zeros(round(self.delay * hop_length), np.float32), audio])

    def held_frames(self, library: NoteDataset, hop_length: int) -> int:
        """Frames for which its key is held."""
        held = float(library.held_seconds[self.row]) / self.speed * library.sample_rate / hop_length
        return max(1, round(held + self.delay))


def plan_takes(
    library: NoteDataset, rows: Sequence[int], pitches: tuple[int, int], config: FineTuneConfig
) -> list[Take]:
    """All takes of some notes of a library.

    Each note has several at its own pitch, with different onsets, and one at each near pitch that its
    instrument has no recording of. Held-out notes are not repitched, nor is any to a held-out pitch.

    Args:
        library: the recordings.
        rows: the notes wanted.
        pitches: lowest and highest that there may be.
        config: how many onsets, how many semitones.
    """
    near = [step for step in range(-config.semitones, config.semitones + 1) if step]
    taken = {(int(library.instrument[row]), int(library.pitch[row])) for row in rows}
    takes = []
    for row in rows:
        instrument, pitch = int(library.instrument[row]), int(library.pitch[row])
        takes += [Take(row, 0, index / config.onset_variants) for index in range(config.onset_variants)]
        if library.split[row] == int(Split.TRAIN):
            takes += [
                Take(row, step, index / len(near))
                for index, step in enumerate(near)
                if (instrument, pitch + step) not in taken and pitches[0] <= pitch + step <= pitches[1]
            ]
    return takes
