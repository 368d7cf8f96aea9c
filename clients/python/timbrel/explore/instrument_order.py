"""What a page may ask for as a playable instrument: checked, with the defaults filled in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from timbrel.core.model import Model
from timbrel.core.timbre import Instrument
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.explore.parameters import refuse_unknown
from timbrel.library import LibraryJob, SamplingChoice, Writer
from timbrel.library.job import DEFAULT_SECONDS, DEFAULT_SEED, check_job
from timbrel.library.ranges import parse_pitches
from timbrel.library.voice import NamedPoint, name_voices

FIELDS = frozenset({"x", "y", "name", "pitches", "velocities", "seconds", "seed", "format"})

DEFAULT_PITCHES = "48-72:3"
DEFAULT_VELOCITIES = (60, 110)
MAX_NOTES = 256
MAX_NAME = 60


@dataclass(frozen=True)
class InstrumentOrder:
    """An instrument to build."""

    x: float
    y: float
    name: str | None
    """For people; None names it by its point."""

    pitches: tuple[int, ...]
    velocities: tuple[int, ...]
    seconds: float
    seed: int
    format: Literal["wav", "flac"]

    @property
    def n_notes(self) -> int:
        return len(self.pitches) * len(self.velocities)

    @classmethod
    def parse(cls, content: bytes, model: Model) -> InstrumentOrder:
        """
        Raises:
            InvalidRequestError: it is no JSON object, or a field is not what it should be.
        """
        given = _object(content)
        refuse_unknown(given, FIELDS)
        low, high = model.pitch_range
        pitches = parse_pitches(_text(given, "pitches") or DEFAULT_PITCHES)
        order = cls(
            x=_number(given, "x"),
            y=_number(given, "y"),
            name=_name(_text(given, "name")),
            # The default is cut to what the bundle plays; what was asked for is not.
            pitches=pitches
            if "pitches" in given
            else tuple(p for p in pitches if low <= p <= high) or (low,),
            velocities=_velocities(given.get("velocities", DEFAULT_VELOCITIES)),
            seconds=_number(given, "seconds", min(DEFAULT_SECONDS, model.seconds_range[1])),
            seed=_whole("seed", given.get("seed", DEFAULT_SEED)),
            format=cast(Literal["wav", "flac"], _text(given, "format") or "wav"),
        )
        if order.n_notes > MAX_NOTES:
            raise _refusal(
                "pitches",
                f"{order.n_notes} notes are too many; {MAX_NOTES} at most, or use `timbrel library`",
            )
        check_job(order.job(model, ()), model)
        return order

    def job(self, model: Model, known: Sequence[Instrument]) -> LibraryJob:
        """What the library code is asked for.

        Args:
            known: the instruments of the map, the nearest of which is named in the files.
        """
        sampling = model.default_sampling
        return LibraryJob(
            writer=Writer.of(model),
            voices=name_voices([NamedPoint(self.name, (self.x, self.y))], known),
            pitches=self.pitches,
            velocities=self.velocities,
            round_robins=1,
            seconds=self.seconds,
            sampling=SamplingChoice(sampling.temperature, sampling.top_k, sampling.top_p),
            seed=self.seed,
            file_format=self.format,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> InstrumentOrder:
        """Of what `to_json` made."""
        tuples = {name: tuple(fields[name]) for name in ("pitches", "velocities")}
        return cls(**{**fields, **tuples})


def _object(content: bytes) -> dict[str, Any]:
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidRequestError("the body is no JSON that can be read") from None
    if not isinstance(given, dict):
        raise InvalidRequestError("the body is no JSON object")
    return given


def _number(given: dict[str, Any], field: str, default: float | None = None) -> float:
    value = given.get(field, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise _refusal(field, f"{_shown(value)} is no number" if field in given else "is missing")
    return float(value)


def _whole(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _refusal(field, f"{_shown(value)} is no whole number of 0 or more")
    return value


def _text(given: dict[str, Any], field: str) -> str:
    value = given.get(field, "")
    if value is not None and not isinstance(value, str):
        raise _refusal(field, f"{_shown(value)} is no text")
    return value or ""


def _name(text: str) -> str | None:
    """In one line, of printable letters; None where there is none."""
    kept = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(kept.split())[:MAX_NAME].strip() or None


def _velocities(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > 127:
        raise _refusal("velocities", f"{_shown(value)} is no list of MIDI velocities")
    return tuple(sorted({_whole("velocities", each) for each in value}))


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _refusal(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(field, description)])
