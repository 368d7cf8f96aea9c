"""The fields of a request for a note: one table for the server, the client, the command line and the page.

Who adds a field adds a row here and, for a sampling parameter, a field of `SamplingSettings`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeGuard

from timbrel_bundle.audio import MAX_SAMPLE_RATE
from timbrel_bundle.randomness import MAX_SEED
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Violation: TypeAlias = tuple[str, str]
"""The request's field, and what is wrong with it: its value and what is allowed."""

DISC_SLACK = 1e-6
"""A point may lie so far outside the unit disc: float32 cannot hold every point of the circle."""

MIN_SAMPLE_RATE = 8000
"""Hz. Of a recording to be located: below the telephone's, nothing of a timbre is left."""

MAX_PITCH = 127

Cents: TypeAlias = float | Sequence[tuple[float, float]]
"""A bend: so many cents throughout, or lines through points (seconds since the note began, cents), level
before the first and behind the last."""

MAX_CENTS_POINTS = 4096

TimbrePath: TypeAlias = Sequence[tuple[float, tuple[float, float]]]
"""Where a note's timbre goes: points (seconds since the note began, (x, y)), the sound of one becoming that
of the next; level behind the last."""

MAX_PATH_POINTS = 64
MAX_PATH_SECONDS = 86_400.0

NO_MOVES = "notes of this bundle's codec keep their timbre; leave it out"
NO_BENDS = "the bundle's codec does not bend notes; leave the cents at 0"
SEED_BITS = 32
"""A seed that a client draws has as many: few enough digits to be typed again, and exact in JavaScript."""


@dataclass(frozen=True)
class RequestField:
    """One number of a request: what it means, which values it may have, what it is where nobody sets it."""

    name: str
    kind: type[int] | type[float]
    help: str
    """For people, in a few words."""

    noun: str = ""
    """Messages call such a whole number so."""

    between: str = ""
    """The field for what lies between two whole numbers."""

    low: float | None = None
    """The least value allowed. None: the manifest's ranges tell it, as `{name}_min`; so for `high`."""

    high: float | None = None

    above_low: bool = False
    """True where `low` itself is too low."""

    default: float | None = None
    """It is this where it is left out. None: the server decides, or nothing does and it must be there."""

    required: bool = False
    sampling: bool = False
    """True of those that are fields of `SamplingSettings`."""

    curve: bool = False
    """True where the value may change while the note sounds: see `Cents`."""

    off: float | None = None
    """The value at which a sampling parameter that was added later does nothing: the keys of libraries leave
    it out, and what was written before there was the parameter is read as having it."""

    @property
    def path(self) -> str:
        """Its name inside a GenerateRequest, as error messages give it."""
        return f"sampling.{self.name}" if self.sampling else self.name

    def range(self, ranges: pb.RequestRanges) -> tuple[float, float]:
        """The least and the greatest value allowed."""
        low = getattr(ranges, f"{self.name}_min") if self.low is None else self.low
        high = getattr(ranges, f"{self.name}_max") if self.high is None else self.high
        return low, high

    def fault(
        self, value: object, ranges: pb.RequestRanges, most_points: int | None = MAX_CENTS_POINTS
    ) -> str | None:
        """Tells what is wrong with a value, and what is allowed; None where it is well. A curve has up to
        `most_points`, as requests have room for, or any number of them."""
        if value is None and not self.required:
            return None
        low, high = self.range(ranges)
        if self.curve and not is_finite(value):
            return _points_fault(value, low, high, most_points)
        if self.kind is int:
            fault = _whole_fault(value, int(low), int(high), self.noun)
            is_between = self.between and is_finite(value) and not float(value).is_integer()
            return f"{fault}, and {self.between} for what lies between" if is_between else fault
        if is_finite(value) and (low < value if self.above_low else low <= value) and value <= high:
            return None
        if self.name == "seconds":
            return f"{_show(value)} is not a length the bundle knows; {low:g} to {high:g} seconds are allowed"
        allowed = f"above {low:g} and up to {high:g}" if self.above_low else f"{low:g} to {high:g}"
        return f"{_show(value)} is not allowed; {allowed} is"


REQUEST_FIELDS = (
    RequestField(
        "pitch",
        int,
        "MIDI note number of the bundle's range",
        "MIDI note number",
        between="cents",
        default=60,
        required=True,
    ),
    RequestField(
        "velocity",
        int,
        "MIDI velocity, 1 to 127 or what `timbrel info` says",
        "MIDI velocity",
        default=100,
        required=True,
    ),
    RequestField("seconds", float, "how long the key is held", default=2.0, required=True),
    RequestField("seed", int, "for the same note again", "seed", low=0, high=MAX_SEED),
    RequestField(
        "cents", float, "how far from its pitch it sounds", low=-2400.0, high=2400.0, default=0.0, curve=True
    ),
    RequestField(
        "temperature", float, "0 always takes the most likely code", low=0.0, high=2.0, sampling=True
    ),
    RequestField(
        "top_k",
        int,
        "draw from the k most likely codes only",
        "number of tokens",
        low=1,
        high=256,
        sampling=True,
    ),
    RequestField(
        "top_p",
        float,
        "draw from the likeliest codes of this probability only",
        low=0.0,
        high=1.0,
        above_low=True,
        sampling=True,
    ),
)
"""Every number of a request beside its timbre, in the order of the messages about them."""

FIELD = {field.name: field for field in REQUEST_FIELDS}
"""The same by name."""

SAMPLING_FIELDS = tuple(field for field in REQUEST_FIELDS if field.sampling)


@dataclass(frozen=True)
class SamplingSettings:
    """The settings that each token is drawn with; None in a field takes the server's default."""

    temperature: float | None = None
    """Softmax temperature; 0 always takes the most likely token."""

    top_k: int | None = None
    """Only the k most likely tokens are drawn from, 1..256."""

    top_p: float | None = None
    """Only the smallest set of tokens whose probabilities reach p is drawn from, in (0, 1]."""

    @classmethod
    def of(cls, holder: object) -> SamplingSettings:
        """Reads attributes of these names from what has them: parsed arguments, a client's request."""
        return cls(**{field.name: getattr(holder, field.name) for field in SAMPLING_FIELDS})

    @classmethod
    def from_pb(cls, message: pb.Sampling) -> SamplingSettings:
        """Reads those that are set in the message."""
        names = [field.name for field in SAMPLING_FIELDS if message.HasField(field.name)]
        return cls(**{name: getattr(message, name) for name in names})

    def to_pb(self) -> pb.Sampling:
        """The message; what is None stays unset."""
        return pb.Sampling(**self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """By name."""
        return dataclasses.asdict(self)

    def effective(self) -> dict[str, Any]:
        """Gives them by name, without those that do nothing."""
        offs = {field.name: field.off for field in SAMPLING_FIELDS}
        return {name: value for name, value in self.to_dict().items() if value != offs[name]}

    def filled(self, defaults: SamplingSettings) -> SamplingSettings:
        """These, and the defaults where they are None."""
        own = {name: value for name, value in self.to_dict().items() if value is not None}
        return dataclasses.replace(defaults, **own)


DEFAULT_SAMPLING = SamplingSettings(temperature=0.6, top_k=256, top_p=0.95)
"""A server draws with these where a request leaves it open. At temperature 1 neighbouring keys differ by more
than an instrument's do, and lie farther from its own; at 0 every seed writes the same codes."""
HEADER_TEMPERATURE = 0.3
"""A server draws a note's header, its lead frames, at this share of the temperature asked. Each of a header's
codes is drawn without knowing the others, so what they are off by adds up: by the same temperature as the
frames behind, the takes of a key lay twice as far apart in level, and so did neighbouring keys."""


def check_request(
    ranges: pb.RequestRanges,
    timbre: Sequence[float] | None,
    pitch: int | None,
    velocity: int,
    seconds: float,
    sampling: SamplingSettings | pb.Sampling | None = None,
    seed: int | None = None,
    cents: Cents = 0.0,
    *,
    path: Sequence[tuple[float, Sequence[float] | None]] = (),
    bends: bool = True,
    moves: bool = True,
) -> list[Violation]:
    """Lists what is wrong with a request for a note, as (field, description); [] where all is well.

    None as sampling, or in a field of it, takes the server's default, and as seed lets the server draw one.
    `bends` and `moves` are the codec's (CodecSpec): whether notes bend, and can change their timbre.
    """
    if isinstance(sampling, pb.Sampling):
        sampling = SamplingSettings.from_pb(sampling)
    drawn = (sampling or SamplingSettings()).to_dict()
    values = {"pitch": pitch, "velocity": velocity, "seconds": seconds, "seed": seed, "cents": cents, **drawn}
    faults = [("timbre", timbre_fault(timbre))]
    faults += [(field.path, field.fault(values[field.name], ranges)) for field in REQUEST_FIELDS]
    if not bends and not is_unbent(cents):
        faults.append(("cents", NO_BENDS))
    if path:
        faults.append(("path", _path_fault(path) if moves else NO_MOVES))
    return [(path, fault) for path, fault in faults if fault]


def check_recording(sample_rate: int, pitch: float | None) -> list[Violation]:
    """Lists what is wrong with a request to locate a recording, its sound aside, as `check_request` does: of
    its rate in Hz and its pitch, a MIDI note number, fractions allowed, or None."""
    checks = (
        ("sample_rate", _whole_fault(sample_rate, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE, "rate in Hz")),
        ("pitch", None if pitch is None else _hint_fault(pitch)),
    )
    return [(field, fault) for field, fault in checks if fault]


def _path_fault(path: Sequence[tuple[float, Sequence[float] | None]]) -> str | None:
    if len(path) > MAX_PATH_POINTS:
        return f"has {len(path)} points; up to {MAX_PATH_POINTS} are allowed"
    before = 0.0
    for seconds, timbre in path:
        if not is_finite(seconds) or not before <= seconds <= MAX_PATH_SECONDS:
            allowed = f"{before:.7g} to {MAX_PATH_SECONDS:g} s"
            return f"{_show(seconds)} s is not within {allowed}; points are given in order"
        if timbre is None:
            return f"has no timbre at {seconds:.7g} s; a point (x, y) with x^2 + y^2 <= 1 is needed"
        if fault := timbre_fault(timbre):
            return fault
        before = seconds
    return None


def timbre_fault(timbre: Sequence[float] | None) -> str | None:
    """Tells what is wrong with a point of the map, and what is allowed; None where it is well."""
    if timbre is None:
        return "is missing; a point (x, y) with x^2 + y^2 <= 1 is needed"
    if len(timbre) != 2 or not all(is_finite(value) for value in timbre):
        return (
            f"{_show(tuple(timbre))} is not a point (x, y); two finite numbers with x^2 + y^2 <= 1 are needed"
        )
    radius = math.hypot(timbre[0], timbre[1])
    if radius > 1.0 + DISC_SLACK:
        return f"{_show(tuple(timbre))} lies {radius:.7g} from the centre; x^2 + y^2 <= 1 is allowed"
    return None


def _hint_fault(pitch: float) -> str | None:
    if not is_finite(pitch) or not 0 < pitch <= MAX_PITCH:
        return f"{_show(pitch)} is not a MIDI note number; above 0 and up to {MAX_PITCH} is, or none at all"
    return None


def is_unbent(cents: Cents) -> bool:
    """Tells whether the bend is none. Its faults are another question."""
    return not cents if is_finite(cents) else not isinstance(cents, Iterable) or not list(cents)


def _points_fault(value: object, low: float, high: float, most_points: int | None) -> str | None:
    points = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else None
    needed = f"a number of {low:g} to {high:g}, or points (seconds, cents), is needed"
    if points is None:
        return f"{_show(value)} is no bend; {needed}"
    if most_points is not None and len(points) > most_points:
        return f"has {len(points)} points; up to {most_points} are allowed"
    before = 0.0
    for point in points:
        pair = tuple(point) if isinstance(point, Iterable) else ()
        if len(pair) != 2 or not all(map(is_finite, pair)):
            return f"{_show(point)} is no point of a bend; {needed}"
        if pair[0] < before:
            return f"{_show(pair)} lies before {before:.7g} s; points are given in order, from 0 s on"
        if not low <= pair[1] <= high:
            return f"{_show(pair[1])} is not allowed; {low:g} to {high:g} is"
        before = pair[0]
    return None


def _whole_fault(value: object, low: int, high: int, what: str) -> str | None:
    allowed = f"a {what} of {low} to {high}"
    if value is None:
        return f"is missing; {allowed} is needed"
    if not isinstance(value, Integral) or isinstance(value, bool):
        return f"{_show(value)} is not a whole number; {allowed} is needed"
    if not low <= int(value) <= high:
        return f"{_show(value)} is out of range; {allowed} is allowed"
    return None


def is_finite(value: object) -> TypeGuard[float]:
    """Tells whether this is a number that is neither NaN nor infinite. Bool is no number here."""
    if type(value) is float:  # told in a tenth of the time: a request has thousands
        return math.isfinite(value)
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
