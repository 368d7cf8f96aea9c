"""Tunings as Scala writes them: a scale (.scl), and the keyboard map (.kbm) that lays it on the keys."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

from timbrel.errors import refusal

N_KEYS = 128
MIDDLE_C = 60
A4, A4_HERTZ = 69, 440.0
MAX_BYTES = 1 << 18
"""The largest of Scala's own archive have some tens of kilobytes."""
MAX_DEGREES = 4096
HERTZ_RANGE = (1.0, 100_000.0)
MAX_CENTS = 120_000.0
"""Of a step of a scale: all that can be heard lies within a tenth of it."""

KeyCents = tuple[float | None, ...]
"""For each of the 128 keys, cents above its pitch in equal temperament; None: the key is silent."""

EQUAL_TEMPERAMENT: KeyCents = (0.0,) * N_KEYS


@dataclass(frozen=True)
class _Map:
    """A keyboard map, as Scala's .kbm files have it."""

    first: int = 0
    last: int = N_KEYS - 1
    middle: int = MIDDLE_C
    """The key of the scale's first degree."""
    reference: int = MIDDLE_C
    hertz: float = A4_HERTZ * 2.0 ** ((MIDDLE_C - A4) / 12)
    """The reference key's frequency."""
    octave: int = 0
    """The degree at which the map begins again."""
    degrees: tuple[int | None, ...] = ()
    """For each key from the middle one on its degree, or None for silence; empty: one after another."""


def read_tuning(scale: str | Path, keyboard_map: str | Path | None = None) -> KeyCents:
    """Reads the files; see `parse_tuning`. Raises InvalidRequestError: a file is missing or damaged; the
    message names the line."""
    mapped = None if keyboard_map is None else _content(keyboard_map, "keyboard_map")
    return parse_tuning(str(scale), _content(scale, "tuning"), str(keyboard_map), mapped)


def parse_tuning(
    scale_name: str, scale: bytes, map_name: str = "", keyboard_map: bytes | None = None
) -> KeyCents:
    """Reads a scale and a keyboard map; the names are for messages.

    Without a map, degree 0 is middle C at 261.63 Hz, and the degrees follow key by key.

    Raises:
        InvalidRequestError: one is damaged; the message names the line.
    """
    steps = _read_scale(scale_name, scale)
    placed = _Map() if keyboard_map is None else _read_map(map_name, keyboard_map)

    def cents(key: int) -> float | None:
        if not placed.degrees:
            return _degree_cents(steps, key - placed.middle)
        rounds, place = divmod(key - placed.middle, len(placed.degrees))
        if (degree := placed.degrees[place]) is None:
            return None
        return _degree_cents(steps, degree) + rounds * _degree_cents(steps, placed.octave or len(steps))

    at_reference = cents(placed.reference)
    if at_reference is None:
        raise refusal(
            "keyboard_map", f"{map_name}: its reference key {placed.reference} is mapped to no degree"
        )
    base = 100.0 * A4 + 1200.0 * math.log2(placed.hertz / A4_HERTZ) - at_reference
    keys = ((key, cents(key) if placed.first <= key <= placed.last else None) for key in range(N_KEYS))
    return tuple(None if each is None else base + each - 100.0 * key for key, each in keys)


def _degree_cents(steps: Sequence[float], degree: int) -> float:
    """Cents above the scale's first degree; `steps` are those of degrees 1, 2, ... up to the period."""
    periods, place = divmod(degree, len(steps))
    return periods * steps[-1] + (steps[place - 1] if place else 0.0)


def _content(path: str | Path, field: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refusal(field, f"{path}: {(error.strerror or 'it cannot be read').lower()}") from None
    if len(content) > MAX_BYTES:
        raise refusal(field, f"{path} is no file of Scala's: {MAX_BYTES >> 10} KiB at most are read")
    return content


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """(number, line) without comments. Bytes say where lines end: read as text, UTF-8's "Å" would end one."""
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        if not line.startswith(b"!"):
            yield number, line.decode("latin1").strip()


_STEP = re.compile(r"(-?\d*\.\d*)|(\d+)\s*(?:/\s*(\d+))?")


def _read_scale(path: str, data: bytes) -> list[float]:
    """Cents of the degrees from 1 on; the last is the period."""
    lines = list(islice(_lines(data), 2 + MAX_DEGREES))
    if len(lines) < 2 or not (count := re.match(r"\d{1,6}", lines[1][1])):
        raise refusal("tuning", f"{path} is no Scala scale: its second line is to hold the number of notes")
    n_steps = int(count[0])
    if not 1 <= n_steps <= MAX_DEGREES:
        raise refusal("tuning", f"{path} announces {n_steps} notes; 1 to {MAX_DEGREES} may be")
    if len(lines) < 2 + n_steps:
        raise refusal("tuning", f"{path} announces {n_steps} notes and holds {len(lines) - 2}")
    steps = []
    for number, line in lines[2 : 2 + n_steps]:
        try:
            steps.append(_step_cents(line))
        except (ValueError, ArithmeticError):
            raise refusal(
                "tuning", f"{path}, line {number}: {line[:40]!r} is no pitch; 701.955 (cents) or 3/2 is one"
            ) from None
    return steps


def _step_cents(text: str) -> float:
    # What follows a pitch is a comment, but the rest of a number with a decimal comma, or of 3:2.
    if not (match := _STEP.match(text)) or re.match(r"[,:]\d", text[match.end() :]):
        raise ValueError(text)
    cents = float(match[1]) if match[1] else 1200.0 * math.log2(Fraction(int(match[2]), int(match[3] or 1)))
    if not abs(cents) <= MAX_CENTS:
        raise ValueError(text)
    return cents


def _read_map(path: str, data: bytes) -> _Map:
    words = ((number, line.split(maxsplit=1)[0]) for number, line in _lines(data) if line)
    fields = list(islice(words, 7 + MAX_DEGREES))
    numbers: list[float] = []
    for number, text in fields[:7]:
        try:
            numbers.append(float(text))
        except ValueError:
            raise refusal("keyboard_map", f"{path}, line {number}: {text[:40]!r} is no number") from None
    if len(numbers) < 7 or not all(math.isfinite(each) for each in numbers):
        raise refusal("keyboard_map", f"{path} is no Scala keyboard map: it is to begin with seven numbers")
    size, first, last, middle, reference, octave = (int(numbers[place]) for place in (0, 1, 2, 3, 4, 6))
    hertz, (lowest, highest) = numbers[5], HERTZ_RANGE
    in_order = 0 <= size <= MAX_DEGREES and 0 <= octave <= MAX_DEGREES and 0 <= reference < N_KEYS
    if not (in_order and -N_KEYS < middle < 2 * N_KEYS and lowest <= hertz <= highest):
        raise refusal("keyboard_map", f"{path}: a size, key, frequency or degree is out of range")
    degrees: list[int | None] = []
    for number, text in fields[7 : 7 + size]:
        if text.casefold() != "x" and not re.fullmatch(r"\d{1,4}", text):
            raise refusal("keyboard_map", f"{path}, line {number}: {text[:40]!r} is neither a degree nor x")
        degrees.append(None if text.casefold() == "x" else int(text))
    degrees += [None] * (size - len(degrees))  # missing at the end means silent
    return _Map(first, last, middle, reference, hertz, octave, tuple(degrees))
