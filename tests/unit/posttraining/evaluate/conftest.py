"""The tiny bundle beside a library of its instruments, and measurements made up as a test needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Take
from timbrel_posttraining.evaluate.measure.features import NoteFeatures
from timbrel_posttraining.evaluate.takes import Measurements, TakeCache
from timbrel_training.notes.dataset import NoteDataset


@pytest.fixture
def notes(tiny_bundle: Path, library_dir: Path) -> EvaluationSet:
    """The tiny bundle and that library, with a count of 40."""
    return EvaluationSet(Bundle.open(tiny_bundle), NoteDataset(library_dir), 40)


@pytest.fixture
def cache(tmp_path: Path) -> TakeCache:
    """An empty one."""
    return TakeCache(tmp_path)


@pytest.fixture
def make_features() -> Callable[..., NoteFeatures]:
    """Makes the record of a perfect note, but for the fields given."""

    def make(**changes: object) -> NoteFeatures:
        perfect = {
            "seconds": 1.0,
            "truncated": False,
            "in_tune": True,
            "swift_in_tune": True,
            "within_15": True,
            "octave_error": False,
            "spread_cents": 2.0,
            "jump_cents": 5.0,
            "attack_seconds": 0.02,
            "release_seconds": 0.2,
            "harmonic_to_noise_db": 20.0,
            "level_db": -20.0,
            "brightness": 1000.0,
            "x": 0.0,
            "y": 0.0,
        }
        return NoteFeatures(**{**perfect, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def measure(cache: TakeCache) -> Callable[..., Measurements]:
    """Puts measurements into the cache: of each take a record or a spectrogram, as functions give them."""

    def put(
        takes: Sequence[Take],
        features: Callable[[Take], NoteFeatures] | None = None,
        mel: Callable[[Take], NDArray[np.float32]] | None = None,
        statistics: Callable[[Take], NDArray[np.float32]] | None = None,
    ) -> Measurements:
        for take in takes:
            if features is not None:
                cache.save_features(take, features(take))
            if mel is not None:
                cache.save_mel(take, mel(take))
            if statistics is not None:
                cache.save_statistics(take, statistics(take))
        return Measurements(cache)

    return put
