"""A timbre as people give it: two numbers, or an instrument's name."""

from __future__ import annotations

from timbrel.core.instrument import point_of
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_bundle.errors import UnknownInstrumentError
from timbrel_bundle.timbre_map import find_instrument
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


def parse_timbre(text: str) -> tuple[float, float] | str:
    """Reads "0.2,-0.4" as a point; what does not consist of numbers is an instrument's name.

    Raises:
        InvalidRequestError: there is nothing, or another number of numbers than two.
    """
    numbers = _numbers(text)
    if numbers is None and text.strip():
        return text.strip()
    if numbers is None or len(numbers) != 2:
        raise _refusal(f"must be an instrument's name or x,y, got {text!r}")
    return numbers[0], numbers[1]


def instrument_point(timbre_map: pb.TimbreMap, name: str) -> tuple[float, float]:
    """The point of the instrument of this name, whatever its case.

    Raises:
        InvalidRequestError: there is none; the message suggests the nearest names.
    """
    try:
        return point_of(find_instrument(timbre_map, name))
    except UnknownInstrumentError as error:
        raise _refusal(str(error)) from None


def _numbers(text: str) -> list[float] | None:
    """The numbers between the commas; None where something else stands there."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return None


def _refusal(description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("timbre", description)])
