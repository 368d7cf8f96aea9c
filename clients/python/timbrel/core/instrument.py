"""The named points of a timbre map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@dataclass(frozen=True)
class Instrument:
    """An instrument of the timbre map: a point with a name.

    >>> violin = next(each for each in client.timbre_map() if each.name == "Violin")
    >>> violin.family, len(violin.timbre), violin.pitch_min < violin.pitch_max
    ('Strings', 2, True)
    """

    name: str
    """For example "Violin"."""

    family: str
    """For example "Strings"."""

    timbre: tuple[float, float]
    """Its point (x, y) in the unit disc."""

    pitch_min: int
    """Lowest MIDI note number it was trained on."""

    pitch_max: int
    """Highest MIDI note number it was trained on, inclusive."""


def instrument_from_pb(point: pb.TimbrePoint) -> Instrument:
    return Instrument(point.instrument, point.family, point_of(point), point.pitch_min, point.pitch_max)


def point_of(point: pb.TimbrePoint) -> tuple[float, float]:
    """The point (x, y) in the fewest digits that name the very same float32 again: 0.6, not 0.6000000238."""
    return float(str(np.float32(point.x))), float(str(np.float32(point.y)))
