"""What a request may ask for: the same check in clients, before a call, and in the server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import NamedTuple, TypeAlias

from timbrel_bundle.audio import MAX_SAMPLE_RATE
from timbrel_bundle.randomness import MAX_SEED
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Violation: TypeAlias = tuple[str, str]
"""The request's field, and what is wrong with it: its value and what is allowed."""

DISC_SLACK = 1e-6
"""How far outside the unit disc a point may lie: float32 cannot hold every point of the circle."""

MIN_SAMPLE_RATE = 8000
"""Hz. Of a recording to be located: below the telephone's, nothing of a timbre is left."""

MAX_PITCH = 127
MAX_TEMPERATURE = 2.0
MAX_TOP_K = 256


class SamplingValues(NamedTuple):
    """How to draw tokens; None takes the server's default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None

    @classmethod
    def from_pb(cls, sampling: pb.Sampling) -> SamplingValues:
        """The fields that are set."""
        return cls(
            sampling.temperature if sampling.HasField("temperature") else None,
            sampling.top_k if sampling.HasField("top_k") else None,
            sampling.top_p if sampling.HasField("top_p") else None,
        )


def check_request(
    ranges: pb.RequestRanges,
    timbre: Sequence[float] | None,
    pitch: int | None,
    velocity: int,
    seconds: float,
    sampling: SamplingValues | pb.Sampling | None = None,
    seed: int | None = None,
) -> list[Violation]:
    """What is wrong with a request for a note: (field, description) for each fault, [] where all is well.

    Args:
        ranges: the bundle's.
        timbre: (x, y), within the unit disc.
        pitch: MIDI note number.
        velocity: MIDI velocity.
        seconds: how long the key is held.
        sampling: None, or None in a field, takes the server's default.
        seed: None lets the server draw one.
    """
    values = (
        SamplingValues.from_pb(sampling)
        if isinstance(sampling, pb.Sampling)
        else sampling or SamplingValues()
    )
    checks = (
        ("timbre", _timbre_fault(timbre)),
        ("pitch", _whole_fault(pitch, ranges.pitch_min, ranges.pitch_max, "MIDI note number")),
        ("velocity", _whole_fault(velocity, ranges.velocity_min, ranges.velocity_max, "MIDI velocity")),
        ("seconds", _seconds_fault(seconds, ranges)),
        ("seed", None if seed is None else _whole_fault(seed, 0, MAX_SEED, "seed")),
        *_sampling_faults(values),
    )
    return [(field, fault) for field, fault in checks if fault]


def check_recording(sample_rate: int, pitch: float | None) -> list[Violation]:
    """What is wrong with a request to locate a recording, its sound aside: as `check_request` tells it.

    Args:
        sample_rate: of the recording, in Hz.
        pitch: MIDI note number, fractions allowed; None where it is not known.
    """
    checks = (
        ("sample_rate", _whole_fault(sample_rate, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE, "rate in Hz")),
        ("pitch", None if pitch is None else _hint_fault(pitch)),
    )
    return [(field, fault) for field, fault in checks if fault]


def describe_violations(violations: Iterable[Violation]) -> str:
    """All violations in one line, for people: "pitch: 130 is ...; seconds: ..."."""
    return "; ".join(f"{field}: {description}" for field, description in violations)


def _timbre_fault(timbre: Sequence[float] | None) -> str | None:
    if timbre is None:
        return "is missing; a point (x, y) with x^2 + y^2 <= 1 is needed"
    if len(timbre) != 2 or not all(_is_finite(value) for value in timbre):
        return (
            f"{_show(tuple(timbre))} is not a point (x, y); two finite numbers with x^2 + y^2 <= 1 are needed"
        )
    radius = math.hypot(timbre[0], timbre[1])
    if radius > 1.0 + DISC_SLACK:
        return f"{_show(tuple(timbre))} lies {radius:.7g} from the centre; x^2 + y^2 <= 1 is allowed"
    return None


def _hint_fault(pitch: float) -> str | None:
    if not _is_finite(pitch) or not 0 < pitch <= MAX_PITCH:
        return f"{_show(pitch)} is not a MIDI note number; above 0 and up to {MAX_PITCH} is, or none at all"
    return None


def _seconds_fault(seconds: float, ranges: pb.RequestRanges) -> str | None:
    low, high = ranges.seconds_min, ranges.seconds_max
    if not _is_finite(seconds) or not low <= seconds <= high:
        return f"{_show(seconds)} is not a length the bundle knows; {low:g} to {high:g} seconds are allowed"
    return None


def _sampling_faults(values: SamplingValues) -> Iterator[tuple[str, str | None]]:
    temperature, top_k, top_p = values
    if temperature is not None and not (_is_finite(temperature) and 0 <= temperature <= MAX_TEMPERATURE):
        yield "sampling.temperature", f"{_show(temperature)} is not allowed; 0 to {MAX_TEMPERATURE:g} is"
    if top_k is not None:
        yield "sampling.top_k", _whole_fault(top_k, 1, MAX_TOP_K, "number of tokens")
    if top_p is not None and not (_is_finite(top_p) and 0 < top_p <= 1):
        yield "sampling.top_p", f"{_show(top_p)} is not allowed; above 0 and up to 1 is"


def _whole_fault(value: int | None, low: int, high: int, what: str) -> str | None:
    allowed = f"a {what} of {low} to {high}"
    if value is None:
        return f"is missing; {allowed} is needed"
    if not isinstance(value, Integral) or isinstance(value, bool):
        return f"{_show(value)} is not a whole number; {allowed} is needed"
    if not low <= value <= high:
        return f"{_show(value)} is out of range; {allowed} is allowed"
    return None


def _is_finite(value: object) -> bool:
    """Whether this is a number that is neither NaN nor infinite. Bool is no number here."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond float's range
        return False


def _show(value: object) -> str:
    """A value as a user would write it: float32's long tails cut, huge ints and strings shortened."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))})"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):.7g}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
