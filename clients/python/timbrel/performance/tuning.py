"""The MIDI Tuning Standard's messages within a piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timbrel.performance.expression import Steps, Times
from timbrel.scala import EQUAL_TEMPERAMENT, N_KEYS, KeyCents

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

    def power_on(self, time: float) -> None:
        """The pitch classes are as they were; tuning programs are a receiver's memory, and stay."""
        for steps in self._classes.values():
            steps.set(time, 0.0)

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
