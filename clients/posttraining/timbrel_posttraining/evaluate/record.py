"""What is kept of a take that was heard in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from timbrel_posttraining.evaluate.measure.features import NoteFeatures


@dataclass(frozen=True)
class Record:
    """Measurements of one take. NaN where one could not be made."""

    seconds: float  # of sound
    truncated: bool  # cut at the bundle's cap
    in_tune: bool  # within 50 cents by either tracker
    swift_in_tune: bool  # by swift-f0 alone
    within_15: bool  # cents
    octave_error: bool  # right but for the octave
    spread_cents: float  # of the fundamental within the note
    jump_cents: float  # largest step of the fundamental between neighbouring frames
    attack_seconds: float
    release_seconds: float
    harmonic_to_noise_db: float
    level_db: float
    brightness: float  # Hz
    x: float  # where the bundle's timbre encoder puts it; NaN where there is too little to hear
    y: float
    mfcc: tuple[float, ...]  # [12], coefficients 2 to 13
    statistics: tuple[float, ...]  # [40], for the Frechet distance

    @classmethod
    def of(cls, features: NoteFeatures, *, point: tuple[float, float], truncated: bool) -> Record:
        """A record of measured features."""
        tuning = features.tuning
        return cls(
            seconds=features.seconds,
            truncated=truncated,
            in_tune=bool(tuning.in_tune),
            swift_in_tune=bool(tuning.swift_in_tune),
            within_15=bool(tuning.within_15),
            octave_error=bool(tuning.octave_error),
            spread_cents=_number(tuning.spread_cents),
            jump_cents=_number(tuning.jump_cents),
            attack_seconds=_number(features.attack_seconds),
            release_seconds=_number(features.release_seconds),
            harmonic_to_noise_db=_number(features.harmonic_to_noise_db),
            level_db=_number(features.level_db),
            brightness=_number(features.brightness),
            x=point[0],
            y=point[1],
            mfcc=tuple(map(float, features.mfcc)),
            statistics=tuple(map(float, features.statistics)),
        )

    def to_json(self) -> dict[str, object]:
        """Python's JSON, in which NaN stands for itself."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Record:
        """What `to_json` gave."""
        vectors = {name: tuple(values[name]) for name in ("mfcc", "statistics")}
        return cls(**{**values, **vectors})


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
