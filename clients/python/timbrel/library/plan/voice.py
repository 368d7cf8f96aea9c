"""The instruments of a library: points of the timbre map, each with a name that fits into a file's name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import normalize

from timbrel.core.request import Timbre
from timbrel.core.timbre import Instrument, parse_timbre
from timbrel.errors import refusal
from timbrel_bundle.errors import UnknownInstrumentError
from timbrel_bundle.request_fields import DISC_SLACK
from timbrel_bundle.timbre_map import find_instrument, name_key
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_GRID = 200
"""Points across the disc: some 31,000 instruments."""

MAX_PATH_STEPS = 10_000

SLUG_BYTES = 200
"""Names of files may have 255 bytes, and the pitch, the velocity, the take and the ending follow."""

_LATIN = str.maketrans(
    dict(zip("ßÆæŒœØøÐðÞþĐđŁłı", ("ss", "AE", "ae", "OE", "oe", *"OoDd", "Th", "th", *"DdLli"), strict=True))
)
"""Letters of Latin alphabets that are no others with a mark."""


_DEVICE = re.compile("con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)
"""Names of devices, whatever their ending: Windows has no such files or folders."""


@dataclass(frozen=True)
class Hold:
    """For how long the keys of an instrument are held."""

    seconds: float
    release_seconds: float | None
    """Of one that dies away meanwhile: time of the fade, by 60 dB, that ends a note whose key goes up sooner.
    None: it lasts, is looped, and its samples say how it is released."""


@dataclass(frozen=True)
class Voice:
    """One instrument of a library."""

    name: str
    """For people: "Violin", or the point."""

    slug: str
    """For files: letters, digits, "-" and "."; unique within a library."""

    timbre: tuple[float, float]
    """The point (x, y) in the unit disc."""

    nearest: str
    """The instrument of the map that is nearest to the point; "" where the map names none."""

    family: str
    """That instrument's family."""

    hold: Hold | None = None
    """None: its keys are held as all of the library, and its samples say whether it lasts."""


class NamedPoint(NamedTuple):
    """A point, and what it is called."""

    name: str | None
    point: tuple[float, float]

    @classmethod
    def find(cls, timbre: Timbre, known: Sequence[Instrument]) -> NamedPoint:
        """Takes a point as it is, and finds a name on the map. Raises InvalidRequestError: the map has no
        such name; the message suggests the nearest."""
        if not isinstance(timbre, str):
            return cls(None, timbre)
        points = [pb.TimbrePoint(instrument=each.name, x=each.timbre[0], y=each.timbre[1]) for each in known]
        try:
            name = find_instrument(pb.TimbreMap(points=points), timbre).instrument
        except UnknownInstrumentError as error:
            raise refusal("timbre", str(error)) from None
        return cls(name, next(each.timbre for each in known if each.name == name))


def name_voices(named: Iterable[NamedPoint], known: Sequence[Instrument]) -> tuple[Voice, ...]:
    """Makes a voice of each point, the same one under the same name once. Raises InvalidRequestError: a point
    lies outside of the unit disc."""
    voices: list[Voice] = []
    taken: set[str] = set()
    for name, point in dict.fromkeys(named):
        if not math.hypot(*point) <= 1.0 + DISC_SLACK:
            raise refusal(
                "timbre", f"({point[0]:g}, {point[1]:g}) lies outside of the unit disc, x^2 + y^2 <= 1"
            )
        nearest = min(known, key=lambda each: math.dist(each.timbre, point), default=None)
        slug = _unique(slug_of(name) if name else _point_slug(point), taken)
        voices.append(
            Voice(
                name=name or f"({point[0]:.3f}, {point[1]:.3f})",
                slug=slug,
                timbre=point,
                nearest=nearest.name if nearest else "",
                family=nearest.family if nearest else "",
            )
        )
    return tuple(voices)


def tell_untrained(names: Iterable[str], known: Sequence[Instrument], pitches: Sequence[int]) -> str | None:
    """Says which of the map's instruments, by whatever spelling, were not trained on all of these pitches;
    None: each was."""
    asked = {name_key(name) for name in names}
    own = {
        each.name: range(each.pitch_min, each.pitch_max + 1) for each in known if name_key(each.name) in asked
    }
    beyond = {name: sum(pitch not in keys for pitch in pitches) for name, keys in own.items()}
    most = max(beyond, key=beyond.__getitem__, default="")
    if not beyond.get(most):
        return None
    n_others = sum(map(bool, beyond.values())) - 1
    others = f"; so it is with {n_others} more" if n_others else ""
    low, high = own[most][0], own[most][-1]
    return (
        f"{most} was trained on pitches {low} to {high}; beyond, its sound is a guess "
        f"({beyond[most]} of {len(pitches)} here{others})"
    )


def grid_points(n_across: int) -> list[tuple[float, float]]:
    """Lays a square lattice, 1 or 3 to MAX_GRID across, over the unit disc; gives its points, from below."""
    if not 1 <= n_across <= MAX_GRID or n_across == 2:  # whose four are the square's corners
        raise refusal("grid", f"{n_across} points across is not allowed; 1 and 3 to {MAX_GRID} are")
    if n_across == 1:
        return [(0.0, 0.0)]
    ticks = [round(-1.0 + 2.0 * index / (n_across - 1), 6) for index in range(n_across)]
    return [(x, y) for y in ticks for x in ticks if math.hypot(x, y) <= 1.0 + 1e-9]


def path_points(
    start: tuple[float, float], end: tuple[float, float], steps: int
) -> list[tuple[float, float]]:
    """Gives `steps` points, 2 to MAX_PATH_STEPS, straight from one point to another, both included."""
    if not 2 <= steps <= MAX_PATH_STEPS:
        raise refusal("path", f"{steps} steps are not allowed; 2 to {MAX_PATH_STEPS} are")
    shares = [index / (steps - 1) for index in range(steps)]
    return [
        (round(start[0] + share * (end[0] - start[0]), 6), round(start[1] + share * (end[1] - start[1]), 6))
        for share in shares
    ]


def parse_path(text: str) -> tuple[Timbre, Timbre, int]:
    """Reads "A:B:STEPS", where A and B are names or points, x,y. Raises InvalidRequestError: it is something
    else."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.strip() for part in parts):
        raise refusal("path", f"{text!r} is not understood; write A:B:STEPS, for example Violin:Trumpet:5")
    start, end, steps = parts
    if not steps.strip().isdecimal():
        raise refusal("path", f"{steps!r} is not a number of steps; write A:B:STEPS")
    return parse_timbre(start), parse_timbre(end), int(steps)


def slug_of(name: str) -> str:
    """Keeps letters, digits and "-" of a name, SLUG_BYTES at most: "Lead 1 (square)" is "Lead-1-square".

    Letters with marks are those without: "Großes Víolão" is "Grosses-Violao". Letters of other scripts stay.
    """
    kept = "".join(letter if letter.isalnum() else " " for letter in plain_letters(name))
    short = "-".join(kept.split()).encode()[:SLUG_BYTES].decode(errors="ignore")
    slug = short.rstrip("-") or "instrument"
    return f"{slug}-instrument" if _DEVICE.fullmatch(slug) else slug


def plain_letters(text: str) -> str:
    """Writes letters of Latin alphabets by those of ASCII's: "Größe" is "Grosse"; all others stay."""
    return "".join(map(_without_marks, normalize("NFC", text).translate(_LATIN)))


def _without_marks(letter: str) -> str:
    """Writes a letter of ASCII's, with an accent or wide, by these alone; others stay."""
    parts = normalize("NFKD", letter)
    return parts.encode("ascii", "ignore").decode() if parts[0].isascii() else letter


def _point_slug(point: tuple[float, float]) -> str:
    """Names a point, for example "x0.200y-0.400"."""
    x, y = (0.0 if abs(value) < 5e-4 else value for value in point)
    return f"x{x:.3f}y{y:.3f}"


def _unique(slug: str, taken: set[str]) -> str:
    """Numbers a slug that is taken, and adds it to those that are; in small letters, since some file systems
    ignore case."""
    candidate, number = slug, 2
    while candidate.lower() in taken:
        candidate, number = f"{slug}-{number}", number + 1
    taken.add(candidate.lower())
    return candidate
