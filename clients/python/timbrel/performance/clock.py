"""From a MIDI file's ticks to seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Protocol

DEFAULT_TEMPO = 500_000
"""Microseconds a quarter note, where a file says nothing: 120 beats a minute."""

NTSC_FRAMES = 29
"""What files write for 30 frames a second less a thousandth."""


class Clock(Protocol):
    """Says when a tick is."""

    def seconds(self, tick: int) -> float:
        """From the beginning of the piece."""


class TempoClock:
    """Ticks as parts of a quarter note, whose length changes."""

    def __init__(self, ticks_per_quarter: int, tempos: Iterable[tuple[int, int]]) -> None:
        """
        Args:
            tempos: (tick, microseconds a quarter note), in any order; of two at a tick, the last counts.
        """
        self._ticks = [0]
        self._seconds = [0.0]
        self._lengths = [DEFAULT_TEMPO / 1e6 / ticks_per_quarter]
        for tick, tempo in sorted(tempos, key=lambda pair: pair[0]):
            now = self.seconds(tick)
            self._ticks.append(tick)
            self._seconds.append(now)
            self._lengths.append(tempo / 1e6 / ticks_per_quarter)

    def seconds(self, tick: int) -> float:
        place = bisect_right(self._ticks, tick) - 1
        return self._seconds[place] + (tick - self._ticks[place]) * self._lengths[place]


class FrameClock:
    """Ticks as parts of a film's frame (SMPTE): tempos mean nothing."""

    def __init__(self, frames_per_second: int, ticks_per_frame: int) -> None:
        rate = 30.0 / 1.001 if frames_per_second == NTSC_FRAMES else float(frames_per_second)
        self._length = 1.0 / (rate * ticks_per_frame)

    def seconds(self, tick: int) -> float:
        return tick * self._length


def clock_of(division: int, tempos: Iterable[tuple[int, int]]) -> Clock:
    """The clock of a file's header: its division is a signed 16-bit number, negative for SMPTE.

    Raises:
        ValueError: it divides by nothing.
    """
    frames, ticks = -(division >> 8), division & 0xFF
    if division == 0 or (division < 0 and ticks == 0):
        raise ValueError("its header divides time into 0 ticks")
    return FrameClock(frames, ticks) if division < 0 else TempoClock(division, tempos)
