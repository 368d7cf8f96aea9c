"""Measurements of takes: made over several processes, kept in the cache, read for the sections to judge."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_posttraining import processes
from timbrel_posttraining.evaluate.evaluation_set import Kind, Take
from timbrel_posttraining.evaluate.measure.features import NOWHERE, measure_note
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_posttraining.evaluate.takes import TakeAudio, TakeCache
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.notes.log_mel import floor_below, log_mel, log_mel_distance
from timbrel_training.notes.spectrum import HOP, SAMPLE_RATE

CHUNK = 4
"""Takes handed to a process at a time."""

FRAMES_PER_SECOND = SAMPLE_RATE / HOP
"""Frame rate of the spectrograms."""

MELS_KEPT = 2048
"""Spectrograms held in memory: some 100 MB."""


def measure_takes(
    bundle: Path,
    library: Path,
    wanted: Mapping[Take, bool],
    cache: TakeCache,
    jobs: int,
    *,
    progress: bool = False,
) -> None:
    """Measures what the cache lacks.

    Args:
        bundle, library: their folders; each process opens its own.
        wanted: takes, and whether each is measured in full or its log-mel spectrogram is enough.
        jobs: processes; 1 works in this one.
    """
    missing = [
        (take, in_full)
        for take, in_full in wanted.items()
        if not cache.has_mel(take) or (in_full and not cache.has_features(take))
    ]
    if not missing:
        return
    make_measurer = functools.partial(Measurer, bundle, library, cache)
    with (
        processes.results(make_measurer, Measurer.measure, missing, min(jobs, len(missing)), CHUNK) as done,
        bar("measuring", len(missing), "note", shown=progress) as shown,
    ):
        for _ in done:
            shown.update()


class Measurer:
    """Measures takes and keeps what it finds in the cache. One per process."""

    def __init__(self, bundle: Path, library: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._audio = TakeAudio(opened, AudioLibrary(library), cache)
        self._timbre_encoder = TimbreEncoder(opened, n_threads=1)
        self._meter = TuningMeter()
        self._cache = cache

    def measure(self, work: tuple[Take, bool]) -> None:
        """Keeps a take's log-mel spectrogram and, where it is measured in full, its features too."""
        take, in_full = work
        audio, rate = self._audio.of(take)
        if not in_full:
            self._cache.save_mel(take, log_mel(audio, rate))
            return
        features, mel = measure_note(
            audio,
            rate,
            take.pitch,
            take.seconds,
            self._meter,
            point=self._locate(audio, rate),
            truncated=take.kind is Kind.GENERATED and self._cache.codes(take)[1],
        )
        self._cache.save_features(take, features)
        self._cache.save_mel(take, mel)

    def _locate(self, audio: NDArray[np.float32], sample_rate: int) -> tuple[float, float]:
        """Places a note by its sound alone, not even its pitch; NOWHERE where there is too little of it."""
        try:
            return self._timbre_encoder.locate(audio, sample_rate)
        except AudioError:
            return NOWHERE


class Measurements:
    """The measurements of takes, read from the cache as they are asked for."""

    def __init__(self, cache: TakeCache) -> None:
        self.features = functools.cache(cache.features)
        """Reads the features of a take that was measured in full."""
        self.mel = functools.lru_cache(MELS_KEPT)(cache.mel)
        """Reads the log-mel spectrogram [frames, 80], in dB, of any take."""

    def column(self, takes: Sequence[Take], field: str) -> NDArray[np.float64]:
        """One field of the takes' features, [takes]; a flag is 0 or 1."""
        return np.array([float(getattr(self.features(take), field)) for take in takes])

    def points(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """Where the timbre encoder puts the takes, [takes, 2]."""
        features = [self.features(take) for take in takes]
        return np.array([(each.x, each.y) for each in features]).reshape(-1, 2)

    def mfcc(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """Coefficients 2 to 13 of the takes, [takes, 12]."""
        rows = [self.features(take).mfcc for take in takes]
        return np.array(rows, dtype=np.float64).reshape(len(takes), -1)

    def statistics(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """The statistics of each that the Frechet distance compares, [takes, 40]."""
        return np.array([self.features(take).statistics for take in takes], dtype=np.float64)

    def distance(self, reference: Take, other: Take) -> float:
        """The log-mel distance in dB."""
        return float(log_mel_distance(self.mel(reference), self.mel(other)))

    def held_distance(self, reference: Take, other: Take, floor: float | None = None) -> float:
        """The log-mel distance in dB over the time for which both keys are held.

        Args:
            floor: level in dB that both are clipped at; 60 dB below the reference's peak where it is None.
        """
        n_frames = max(1, int(min(reference.seconds, other.seconds) * FRAMES_PER_SECOND))
        return log_mel_distance(self.mel(reference)[:n_frames], self.mel(other)[:n_frames], floor)

    def nearest(self, take: Take, candidates: Sequence[Take]) -> int:
        """Which of the candidates is nearest to a take, while both are held.

        All are clipped at one floor, 60 dB below the take's own peak.
        """
        floor = floor_below(self.mel(take))
        return int(np.argmin([self.held_distance(candidate, take, floor) for candidate in candidates]))

    def distances(self, references: Sequence[Take], others: Sequence[Take]) -> NDArray[np.float64]:
        """[takes], pair by pair."""
        pairs = zip(references, others, strict=True)
        return np.array([self.distance(reference, other) for reference, other in pairs])
