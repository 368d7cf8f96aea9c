"""One channel of a MIDI file: its program, its controllers and its keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timbrel.performance.keyboard import Keyboard
from timbrel.performance.score import ChannelState, ScoreNote

VOLUME, PAN, EXPRESSION, PEDAL = 7, 10, 11, 64
ALL_SOUND_OFF, RESET_CONTROLLERS, ALL_NOTES_OFF = 120, 121, 123

_FIELDS = {VOLUME: "volume", PAN: "pan", EXPRESSION: "expression"}


class Channel:
    """Follows a channel's messages in the order of time."""

    def __init__(self, number: int) -> None:
        """
        Args:
            number: 1..16.
        """
        self.n_pitch_bends = 0
        self._program = 0
        self._keyboard = Keyboard(number)
        self._states = [ChannelState(0.0)]

    @property
    def notes(self) -> list[ScoreNote]:
        """Those that have ended."""
        return self._keyboard.notes

    @property
    def states(self) -> tuple[ChannelState, ...]:
        """What the controllers said, from when on."""
        return tuple(self._states)

    def play(self, time: float, message: Any) -> None:
        """One of mido's channel messages, `time` seconds from the beginning."""
        match message.type:
            case "note_on":
                self._keyboard.press(time, message.note, message.velocity, self._program)
            case "note_off":
                self._keyboard.release(time, message.note)
            case "program_change":
                self._program = message.program
            case "control_change":
                self._control(time, message.control, message.value)
            case "pitchwheel":
                self.n_pitch_bends += message.pitch != 0

    def finish(self, time: float) -> None:
        """The piece is over: what still sounds is let go."""
        self._keyboard.silence(time)

    def _control(self, time: float, control: int, value: int) -> None:
        if field := _FIELDS.get(control):
            self._change(time, **{field: value})
        elif control == PEDAL:
            self._keyboard.pedal(time, value)
        elif control == ALL_SOUND_OFF:
            self._keyboard.silence(time)
        elif control == ALL_NOTES_OFF:
            self._keyboard.release_all(time)
        elif control == RESET_CONTROLLERS:
            self._keyboard.pedal(time, 0)
            self._change(time, expression=127)  # volume and pan stay: General MIDI's RP-015

    def _change(self, time: float, **values: int) -> None:
        last = self._states[-1]
        changed = replace(last, start=time, **values)
        if last.start == time:
            self._states[-1] = changed
        else:
            self._states.append(changed)
