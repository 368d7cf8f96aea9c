"""One channel of a MIDI file: its program, its controllers, its keys and its pedal."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from timbrel.performance.score import ChannelState, ScoreNote

PEDAL_DOWN = 64
"""Values of the pedal's controller from here on mean down."""


@dataclass(frozen=True)
class _Press:
    start: float
    program: int
    velocity: int


class HeldKeys:
    """Takes events in the order of time, in seconds; `notes` are those that have ended.

    A key may be struck again while it is held: releases then end the oldest first. A note that only the pedal
    holds ends where its key is struck again, as on a piano.
    """

    def __init__(self, channel: int) -> None:
        self.notes: list[ScoreNote] = []
        self._channel = channel
        self._pedal = False
        self._held: dict[int, deque[_Press]] = {}
        self._pedalled: dict[int, list[_Press]] = {}

    def press(self, time: float, pitch: int, velocity: int, program: int) -> None:
        """A key goes down. Velocity 0 is a release, as running status has it."""
        if velocity == 0:
            self.release(time, pitch)
            return
        self._end(time, pitch, self._pedalled.pop(pitch, []))
        self._held.setdefault(pitch, deque()).append(_Press(time, program, velocity))

    def release(self, time: float, pitch: int) -> None:
        """A key comes up; one that is not down is no matter."""
        if not (presses := self._held.get(pitch)):
            return
        press = presses.popleft()
        if self._pedal:
            self._pedalled.setdefault(pitch, []).append(press)
        else:
            self._end(time, pitch, [press])

    def pedal(self, time: float, value: int) -> None:
        """The sustain pedal moves; coming up, it ends all notes whose keys are up."""
        self._pedal = value >= PEDAL_DOWN
        if not self._pedal:
            for pitch, presses in self._pedalled.items():
                self._end(time, pitch, presses)
            self._pedalled.clear()

    def release_all(self, time: float) -> None:
        """All keys come up; the pedal still holds what it holds."""
        for pitch, presses in self._held.items():
            for _ in range(len(presses)):
                self.release(time, pitch)

    def silence(self, time: float) -> None:
        """All notes end, the pedal's too: at the end of the piece, or where a file says so."""
        self.release_all(time)
        for pitch, presses in self._pedalled.items():
            self._end(time, pitch, presses)
        self._pedalled.clear()

    def _end(self, time: float, pitch: int, presses: list[_Press]) -> None:
        for press in presses:
            self.notes.append(
                ScoreNote(
                    start=press.start,
                    held=time - press.start,
                    channel=self._channel,
                    program=press.program,
                    pitch=pitch,
                    velocity=press.velocity,
                )
            )


VOLUME, PAN, EXPRESSION, PEDAL = 7, 10, 11, 64
ALL_SOUND_OFF, RESET_CONTROLLERS, ALL_NOTES_OFF = 120, 121, 123

_FIELDS = {VOLUME: "volume", PAN: "pan", EXPRESSION: "expression"}


class Channel:
    """Follows a channel's messages in the order of time."""

    def __init__(self, number: int) -> None:
        """Channels are numbered 1..16."""
        self.n_pitch_bends = 0
        self._program = 0
        self._keys = HeldKeys(number)
        self._states = [ChannelState(0.0)]

    @property
    def notes(self) -> list[ScoreNote]:
        """The notes that have ended."""
        return self._keys.notes

    @property
    def states(self) -> tuple[ChannelState, ...]:
        """The controllers' values, each from a moment on."""
        return tuple(self._states)

    def play(self, time: float, message: Any) -> None:
        """One of mido's channel messages, `time` seconds from the beginning."""
        match message.type:
            case "note_on":
                self._keys.press(time, message.note, message.velocity, self._program)
            case "note_off":
                self._keys.release(time, message.note)
            case "program_change":
                self._program = message.program
            case "control_change":
                self._control(time, message.control, message.value)
            case "pitchwheel":
                self.n_pitch_bends += message.pitch != 0

    def finish(self, time: float) -> None:
        """The piece is over: what still sounds is let go."""
        self._keys.silence(time)

    def _control(self, time: float, control: int, value: int) -> None:
        if field := _FIELDS.get(control):
            self._change(time, **{field: value})
        elif control == PEDAL:
            self._keys.pedal(time, value)
        elif control == ALL_SOUND_OFF:
            self._keys.silence(time)
        elif control == ALL_NOTES_OFF:
            self._keys.release_all(time)
        elif control == RESET_CONTROLLERS:
            self._keys.pedal(time, 0)
            self._change(time, expression=127)  # volume and pan stay: General MIDI's RP-015

    def _change(self, time: float, **values: int) -> None:
        last = self._states[-1]
        changed = replace(last, start=time, **values)
        if last.start == time:
            self._states[-1] = changed
        else:
            self._states.append(changed)
