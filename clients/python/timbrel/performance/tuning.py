"""Tunings: Scala's scales and keyboard maps, and the MIDI Tuning Standard's messages within a piece."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.errors import refusal
from timbrel.performance.expression import Steps, Times

N_KEYS = 128
MIDDLE_C = 60
A4, A4_HERTZ = 69, 440.0
MAX_BYTES = 1 << 20
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
    """Reads a Scala scale (.scl), and the keyboard map (.kbm) that lays it on the keys.

    Without a map, degree 0 is middle C at 261.63 Hz, and the degrees follow key by key.

    Raises:
        InvalidRequestError: a file is missing or damaged; the message names the line.
    """
    steps = _read_scale(scale)
    placed = _Map() if keyboard_map is None else _read_map(keyboard_map)

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
            "keyboard_map", f"{keyboard_map}: its reference key {placed.reference} is mapped to no degree"
        )
    base = 100.0 * A4 + 1200.0 * math.log2(placed.hertz / A4_HERTZ) - at_reference
    keys = ((key, cents(key) if placed.first <= key <= placed.last else None) for key in range(N_KEYS))
    return tuple(None if each is None else base + each - 100.0 * key for key, each in keys)


def _degree_cents(steps: Sequence[float], degree: int) -> float:
    """Cents above the scale's first degree; `steps` are those of degrees 1, 2, ... up to the period."""
    periods, place = divmod(degree, len(steps))
    return periods * steps[-1] + (steps[place - 1] if place else 0.0)


def _lines(path: str | Path, field: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        raise refusal(field, f"{path}: {(error.strerror or 'it cannot be read').lower()}") from None
    for number, line in enumerate(data.decode("latin1").splitlines(), 1):
        if not line.startswith("!"):
            yield number, line.strip()


_STEP = re.compile(r"(-?\d*\.\d*)|(\d+)\s*(?:/\s*(\d+))?")


def _read_scale(path: str | Path) -> list[float]:
    """Cents of the degrees from 1 on; the last is the period."""
    lines = list(_lines(path, "tuning"))
    if len(lines) < 2 or not (count := re.match(r"\d{1,6}", lines[1][1])):
        raise refusal("tuning", f"{path} is no Scala scale: its second line is to hold the number of notes")
    n_steps = int(count[0])
    if not 1 <= n_steps <= MAX_DEGREES or len(lines) < 2 + n_steps:
        raise refusal(
            "tuning",
            f"{path} announces {n_steps} notes and holds {len(lines) - 2}; 1 to {MAX_DEGREES} may be",
        )
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
    if not (match := _STEP.match(text)):
        raise ValueError(text)
    cents = float(match[1]) if match[1] else 1200.0 * math.log2(Fraction(int(match[2]), int(match[3] or 1)))
    if not abs(cents) <= MAX_CENTS:
        raise ValueError(text)
    return cents


def _read_map(path: str | Path) -> _Map:
    lines = list(_lines(path, "keyboard_map"))
    fields = [(number, line.split()[0]) for number, line in lines if line]
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


NON_REAL_TIME, REAL_TIME, MIDI_TUNING = 0x7E, 0x7F, 0x08
BULK_DUMP, NOTE_CHANGE, BANK_DUMP, BANK_NOTE_CHANGE, OCTAVE_1, OCTAVE_2 = 0x01, 0x02, 0x04, 0x07, 0x08, 0x09
NAME_BYTES = 16
NO_CHANGE = (0x7F, 0x7F, 0x7F)
PITCH_CLASSES = 12


class Retunings:
    """The keys as MIDI Tuning messages tune them, over time, on top of a tuning that holds from the start."""

    def __init__(self, base: KeyCents = EQUAL_TEMPERAMENT) -> None:
        self._base = base
        self._keys: dict[tuple[int, int, int], Steps] = {}  # bank, program, key
        self._classes: dict[tuple[int, int], Steps] = {}  # channel, pitch class

    def is_silent(self, key: int) -> bool:
        """Whether the keyboard map leaves the key out."""
        return self._base[key] is None

    def cents(
        self, program: tuple[int, int], channel: int, key: int, times: Times
    ) -> npt.NDArray[np.float64]:
        """Cents above equal temperament at these times; of a (bank, number), channels count from 0."""
        steps = self._keys.get((*program, key))
        cents = np.full(len(times), self._base[key] or 0.0) if steps is None else steps.at(times)
        of_class = self._classes.get((channel, key % PITCH_CLASSES))
        return cents if of_class is None else cents + of_class.at(times)

    def take(self, time: float, data: Sequence[int]) -> bool:
        """Takes a system exclusive message, without the bytes around it; False where it is no tuning."""
        if len(data) < 7 or data[0] not in (NON_REAL_TIME, REAL_TIME) or data[2] != MIDI_TUNING:
            return False
        form, rest = data[3], list(data[4:])
        if form in (BULK_DUMP, BANK_DUMP):
            bank = rest.pop(0) if form == BANK_DUMP else 0
            values = rest[1 + NAME_BYTES : 1 + NAME_BYTES + 3 * N_KEYS]
            changes = [(key, values[3 * key : 3 * key + 3]) for key in range(len(values) // 3)]
        elif form in (NOTE_CHANGE, BANK_NOTE_CHANGE):
            bank = rest.pop(0) if form == BANK_NOTE_CHANGE else 0
            values = rest[2 : 2 + 4 * rest[1]]
            changes = [
                (values[place], values[place + 1 : place + 4]) for place in range(0, len(values) - 3, 4)
            ]
        elif form in (OCTAVE_1, OCTAVE_2):
            return self._take_octave(time, rest, form == OCTAVE_2)
        else:
            return False
        for key, frequency in changes:
            if tuple(frequency) != NO_CHANGE:
                pitch = frequency[0] + (frequency[1] << 7 | frequency[2]) / (1 << 14)
                steps = self._keys.setdefault((bank, rest[0], key), Steps(self._base[key] or 0.0))
                steps.set(time, 100.0 * (pitch - key))
        return True

    def _take_octave(self, time: float, rest: list[int], fine: bool) -> bool:
        """Scale and octave tuning: channels as bits, and a value for each of twelve pitch classes."""
        values = rest[3:]
        if len(values) < PITCH_CLASSES * (1 + fine):
            return False
        channels = rest[2] | rest[1] << 7 | rest[0] << 14
        for pitch_class in range(PITCH_CLASSES):
            if fine:
                value = (values[2 * pitch_class] << 7 | values[2 * pitch_class + 1]) - (1 << 13)
                cents = 100.0 * value / (1 << 13)
            else:
                cents = float(values[pitch_class] - 64)
            for channel in (number for number in range(16) if channels >> number & 1):
                self._classes.setdefault((channel, pitch_class), Steps()).set(time, cents)
        return True
