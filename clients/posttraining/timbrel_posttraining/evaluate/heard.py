"""All that was measured, for the sections to judge."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.notes.spectrum import HOP, SAMPLE_RATE, floor_below, log_mel_distance

FRAMES_PER_SECOND = SAMPLE_RATE / HOP
"""Of the spectrograms."""

MELS_KEPT = 2048
"""Spectrograms held in memory: some 100 MB."""


class Heard:
    """The measurements of takes, read from the cache as they are asked for."""

    def __init__(self, cache: TakeCache) -> None:
        self._cache = cache
        self.record = functools.cache(cache.record)
        """The record of a take that was heard in full."""
        self.mel = functools.lru_cache(MELS_KEPT)(cache.mel)
        """The log-mel spectrogram [frames, 80], in dB, of any take."""

    def column(self, takes: Sequence[Take], field: str) -> NDArray[np.float64]:
        """One field of the takes' records, [takes]; a flag is 0 or 1."""
        return np.array([float(getattr(self.record(take), field)) for take in takes])

    def points(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """Where the timbre encoder puts the takes, [takes, 2]."""
        records = [self.record(take) for take in takes]
        return np.array([(record.x, record.y) for record in records]).reshape(-1, 2)

    def mfcc(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """Coefficients 2 to 13 of the takes, [takes, 12]."""
        return np.array([self.record(take).mfcc for take in takes], dtype=np.float64).reshape(len(takes), -1)

    def statistics(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """What the Frechet distance takes of each, [takes, 40]."""
        return np.array([self.record(take).statistics for take in takes], dtype=np.float64)

    def distance(self, reference: Take, other: Take) -> float:
        """The log-mel distance in dB."""
        return float(log_mel_distance(self.mel(reference), self.mel(other)))

    def held_distance(self, reference: Take, other: Take) -> float:
        """The log-mel distance in dB over the time for which both keys are held."""
        return self._while_held(reference, other)

    def nearest(self, take: Take, candidates: Sequence[Take]) -> int:
        """Which of the candidates is nearest to a take, while both are held.

        All are clipped at one floor, 60 dB below the take's own peak.
        """
        floor = floor_below(self.mel(take))
        return int(np.argmin([self._while_held(candidate, take, floor) for candidate in candidates]))

    def _while_held(self, reference: Take, other: Take, floor: float | None = None) -> float:
        n_frames = max(1, int(min(reference.seconds, other.seconds) * FRAMES_PER_SECOND))
        return log_mel_distance(self.mel(reference)[:n_frames], self.mel(other)[:n_frames], floor)

    def distances(self, references: Sequence[Take], others: Sequence[Take]) -> NDArray[np.float64]:
        """[takes], pair by pair."""
        pairs = zip(references, others, strict=True)
        return np.array([self.distance(reference, other) for reference, other in pairs])
