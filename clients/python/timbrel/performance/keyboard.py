"""One channel's keys and pedal: from presses and releases to notes with a length."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from timbrel.performance.score import ScoreNote

PEDAL_DOWN = 64
"""Values of the pedal's controller from here on mean down."""


@dataclass(frozen=True)
class _Strike:
    start: float
    program: int
    velocity: int


class Keyboard:
    """Takes events in the order of time, in seconds; `notes` are those that have ended.

    A key may be struck again while it is held: releases then end the oldest first. A note that only the pedal
    holds ends where its key is struck again, as on a piano.
    """

    def __init__(self, channel: int) -> None:
        self.notes: list[ScoreNote] = []
        self._channel = channel
        self._pedal = False
        self._held: dict[int, deque[_Strike]] = {}
        self._pedalled: dict[int, list[_Strike]] = {}

    def press(self, time: float, pitch: int, velocity: int, program: int) -> None:
        """A key goes down. Velocity 0 is a release, as running status has it."""
        if velocity == 0:
            self.release(time, pitch)
            return
        self._end(time, pitch, self._pedalled.pop(pitch, []))
        self._held.setdefault(pitch, deque()).append(_Strike(time, program, velocity))

    def release(self, time: float, pitch: int) -> None:
        """A key comes up; one that is not down is no matter."""
        if not (strikes := self._held.get(pitch)):
            return
        strike = strikes.popleft()
        if self._pedal:
            self._pedalled.setdefault(pitch, []).append(strike)
        else:
            self._end(time, pitch, [strike])

    def pedal(self, time: float, value: int) -> None:
        """The sustain pedal moves; coming up, it ends all notes whose keys are up."""
        self._pedal = value >= PEDAL_DOWN
        if not self._pedal:
            for pitch, strikes in self._pedalled.items():
                self._end(time, pitch, strikes)
            self._pedalled.clear()

    def release_all(self, time: float) -> None:
        """All keys come up; the pedal still holds what it holds."""
        for pitch, strikes in self._held.items():
            for _ in range(len(strikes)):
                self.release(time, pitch)

    def silence(self, time: float) -> None:
        """All notes end, the pedal's too: at the end of the piece, or where a file says so."""
        self.release_all(time)
        for pitch, strikes in self._pedalled.items():
            self._end(time, pitch, strikes)
        self._pedalled.clear()

    def _end(self, time: float, pitch: int, strikes: list[_Strike]) -> None:
        for strike in strikes:
            self.notes.append(
                ScoreNote(
                    start=strike.start,
                    held=time - strike.start,
                    channel=self._channel,
                    program=strike.program,
                    pitch=pitch,
                    velocity=strike.velocity,
                )
            )
