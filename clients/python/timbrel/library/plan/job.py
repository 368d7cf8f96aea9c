"""The job of rendering a library: everything that decides about its files."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any

from timbrel.audio import SAMPLE_RATES
from timbrel.core.model import Model
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.library.plan.formats import DEFAULT_FORMAT, SAMPLE_FORMATS
from timbrel.library.plan.voice import Voice
from timbrel_bundle.request_fields import SAMPLING_FIELDS, SamplingSettings
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

SEED_STRIDE = 100
"""Round robins lie this far apart in seeds, so that a second attempt at one is not another's first."""

MAX_ROUND_ROBINS = 100

LAST_SEED = 2**63 - 1
"""The manifest's table has whole numbers of 64 bits, one of them the sign."""


@dataclass(frozen=True)
class ModelIdentity:
    """The model that writes the codes, and how it runs. Another one may write the same note in other bits."""

    bundle_hash: str
    codec: str
    precision: str
    provider: str

    @classmethod
    def of(cls, model: Model) -> ModelIdentity:
        """The identity of a server's model."""
        return cls(**{each.name: getattr(model, each.name) for each in fields(cls)})


@dataclass(frozen=True)
class LibraryJob:
    """A whole library to be rendered. Two equal jobs write the same files."""

    writer: ModelIdentity
    voices: tuple[Voice, ...]
    pitches: tuple[int, ...]
    """MIDI note numbers, rising."""

    velocities: tuple[int, ...]
    """MIDI velocities, rising: one layer each."""

    round_robins: int
    """Takes of every note, each from a seed of its own."""

    seconds: float
    """How long each key is held, of instruments that have no hold of their own."""

    sampling: SamplingSettings
    """How codes are drawn: each field a number, where need be the server's default."""

    seed: int = 1
    tries: int = 3
    """Attempts at a note that comes out further than half a semitone off."""

    file_format: str = DEFAULT_FORMAT
    """The name of a SampleFormat."""

    sample_rate: int = 48_000
    """Rate of the files, in Hz."""

    loops: bool = True
    """Whether sustained sounds get loops."""

    @property
    def n_notes(self) -> int:
        """The number of samples in the whole library."""
        return len(self.voices) * self.n_notes_each

    @property
    def n_notes_each(self) -> int:
        """The number of samples of each instrument."""
        return len(self.pitches) * len(self.velocities) * self.round_robins

    @property
    def seeds(self) -> tuple[int, int]:
        """The lowest seed that its notes may take, and the highest."""
        return self.seed, self.seed + SEED_STRIDE * (self.round_robins - 1) + self.tries - 1

    def held_seconds(self, voice: Voice) -> float:
        """For how long the keys of one of its instruments are held."""
        return self.seconds if voice.hold is None else voice.hold.seconds

    def to_dict(self) -> dict[str, Any]:
        """The job as values of JSON; of an instrument without a hold of its own it is not there."""
        found = asdict(self)
        for voice in found["voices"]:
            if voice["hold"] is None:
                del voice["hold"]
        return found

    def filled(self, model: Model) -> LibraryJob:
        """The job with the model's defaults where its sampling is left to the server."""
        return replace(self, sampling=self.sampling.filled(SamplingSettings.of(model.default_sampling)))


def check_job(job: LibraryJob, model: Model) -> None:
    """Raises InvalidRequestError, naming all of it, where this model cannot do some of a job."""
    faults = [FieldViolation(field, fault) for field, fault in _faults(job, model) if fault]
    if faults:
        raise InvalidRequestError.of(faults)


def _faults(job: LibraryJob, model: Model) -> list[tuple[str, str | None]]:
    return [
        ("timbre", _voices_fault(job)),
        ("pitches", _outside(job.pitches, model.pitch_range, "the bundle plays") or _unordered(job.pitches)),
        (
            "velocities",
            _outside(job.velocities, model.velocity_range, "the bundle plays") or _unordered(job.velocities),
        ),
        ("seconds", _outside(_holds(job), model.seconds_range, "the bundle holds notes for")),
        ("round_robins", _outside((job.round_robins,), (1, MAX_ROUND_ROBINS))),
        ("tries", _outside((job.tries,), (1, SEED_STRIDE))),
        ("sample_rate", _outside((job.sample_rate,), SAMPLE_RATES)),
        ("format", _format_fault(job)),
        ("seed", _seed_fault(job)),
        *(
            (field.path, field.fault(getattr(job.sampling, field.name), pb.RequestRanges()))
            for field in SAMPLING_FIELDS
        ),
    ]


def _holds(job: LibraryJob) -> tuple[float, ...]:
    return tuple({job.seconds, *(job.held_seconds(voice) for voice in job.voices)})


def _voices_fault(job: LibraryJob) -> str | None:
    if not job.voices:
        return "none is given; --timbre, --grid or --path names some"
    slugs: set[str] = set()  # in small letters, since some file systems ignore case
    for voice in job.voices:
        if not re.fullmatch(r"[^\W_]([^\W_]|[-.])*", voice.slug):
            return f"the slug {voice.slug!r:.40} is not of letters, digits, - and . alone"
        if voice.slug.lower() in slugs:
            return f"two instruments have the slug {voice.slug!r:.40}; each needs its own"
        slugs.add(voice.slug.lower())
    return None


def _unordered(values: tuple[int, ...]) -> str | None:
    if all(one < other for one, other in pairwise(values)):
        return None
    return f"{', '.join(map(str, values[:5]))} do not rise; give each once, the lowest first"


def _format_fault(job: LibraryJob) -> str | None:
    if job.file_format not in SAMPLE_FORMATS:
        return f"must be {' or '.join(SAMPLE_FORMATS)}"
    if SAMPLE_FORMATS[job.file_format].holds(job.sample_rate):
        return None
    return f"{job.file_format} files do not hold sound at {job.sample_rate} Hz"


def _seed_fault(job: LibraryJob) -> str | None:
    lowest, highest = job.seeds
    if (lowest >= 0 and highest <= LAST_SEED) or highest - lowest > SEED_STRIDE * MAX_ROUND_ROBINS:
        return None  # the latter is told of as takes or attempts
    allowed = f"0 to {LAST_SEED - (highest - lowest)}"
    return f"{job.seed} is out of range; with so many takes and attempts {allowed} is allowed"


def _outside(values: tuple[float, ...], bounds: tuple[float, float], verb: str = "allowed is") -> str | None:
    if not values:
        return "none is given"
    low, high = bounds
    outside = ", ".join([f"{value:g}" for value in values if not low <= value <= high][:5])
    return f"{outside} is out of range; {verb} {low:g} to {high:g}" if outside else None
