"""timbre_map.json: the named points of a bundle's timbre map."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from timbrel_bundle.errors import BundleError, UnknownInstrumentError
from timbrel_bundle.files import parse_message, read_json_object, write_message
from timbrel_bundle.manifest import text_faults
from timbrel_bundle.request_fields import DISC_SLACK, MAX_PITCH
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

N_SUGGESTIONS = 3

MOST_POINTS = 10_000

LONGEST_NAME = 200
"""Characters."""


def load_timbre_map(path: Path | str) -> pb.TimbreMap:
    """Reads a timbre_map.json. Raises BundleError where it is missing, unreadable or no map."""
    path = Path(path)
    timbre_map = parse_message(read_json_object(path), pb.TimbreMap(), path)
    for fault in timbre_map_faults(timbre_map):
        raise BundleError(path, fault)
    return timbre_map


def timbre_map_faults(timbre_map: pb.TimbreMap) -> Iterator[str]:
    """Yields what is wrong with a timbre map; nothing where it is sound."""
    if len(timbre_map.points) > MOST_POINTS:
        yield f"names {len(timbre_map.points)} points, {MOST_POINTS} are the most"
    yield from text_faults(timbre_map, LONGEST_NAME)
    known: dict[str, str] = {}
    for point in timbre_map.points:
        if (key := name_key(point.instrument)) in known:
            both = f"{known[key]!r} and {point.instrument!r}"
            yield f"names {both}, which are one name: case and blanks do not count"
        known[key] = point.instrument
        if not math.hypot(point.x, point.y) <= 1.0 + DISC_SLACK:
            yield f"has {point.instrument!r} at ({point.x:g}, {point.y:g}), which is no point of the disc"
        low, high = point.pitch_min, point.pitch_max
        if not low <= high <= MAX_PITCH:
            yield f"gives {point.instrument!r} the pitches {low} to {high}, which is no range"


def save_timbre_map(timbre_map: pb.TimbreMap, path: Path | str) -> None:
    """Writes a timbre_map.json, whole or not at all."""
    write_message(timbre_map, path)


def find_instrument(timbre_map: pb.TimbreMap, name: str) -> pb.TimbrePoint:
    """The point of an instrument, whatever the case of its name. Raises UnknownInstrumentError: there is
    none; the message offers the nearest names."""
    points = {name_key(point.instrument): point for point in timbre_map.points}
    if point := points.get(name_key(name)):
        return point
    raise UnknownInstrumentError(f"no instrument {name!r} on the timbre map; {_suggestion(points, name)}")


def by_distance(timbre_map: pb.TimbreMap, x: float, y: float) -> list[tuple[float, pb.TimbrePoint]]:
    """Every named point with its distance from (x, y), nearest first."""
    distances = [(math.hypot(point.x - x, point.y - y), point) for point in timbre_map.points]
    return sorted(distances, key=lambda pair: pair[0])


def name_key(name: str) -> str:
    """Returns what spellings of one instrument's name have in common: case and blanks are the writer's, and
    whether an accent is a character of its own, as in file names of a Mac, is the system's."""
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def _suggestion(points: dict[str, pb.TimbrePoint], name: str) -> str:
    key = name_key(name)
    containing = [candidate for candidate in points if key and key in candidate]
    family = [candidate for candidate in points if key and name_key(points[candidate].family) == key]
    near = difflib.get_close_matches(key, points, n=N_SUGGESTIONS, cutoff=0.5)
    # Who asks for a piano wants no banjo, however alike their letters are.
    if chosen := list(dict.fromkeys(containing + family))[:N_SUGGESTIONS] or near:
        return f"did you mean {' or '.join(repr(points[candidate].instrument) for candidate in chosen)}?"
    if points:
        return f"it has {len(points)}, such as {next(iter(points.values())).instrument!r}"
    return "it names none: give a point x,y instead"
