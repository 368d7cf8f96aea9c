"""One channel of a MIDI file: its program, its controllers, its keys and its pedal."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from timbrel.performance import controllers as cc
from timbrel.performance.controllers import Parameters, Setting
from timbrel.performance.expression import CENTRE, Steps
from timbrel.performance.score import ChannelState

SOFT_SHARE = 0.75
"""Of its velocity, with which a key is struck while the soft pedal is down: some 5 dB softer, and duller."""

PORTAMENTO_SECONDS = 2.0
"""The slowest portamento; its time grows with the square of the controller."""

BEND_STEPS = 8192
"""Of a pitch wheel, either way."""


class Touch(NamedTuple):
    """Where a channel's wheel, modulation, pressure and slide are."""

    bend: float = 0.0
    """Cents."""
    vibrato: float = 0.0
    """Cents."""
    pressure: float = 0.0
    slide: float = CENTRE


@dataclass(frozen=True)
class Press:
    """A key that went down."""

    start: float
    """Seconds."""
    key: int
    velocity: int
    program: int
    zone: Channel | None = None
    """The MPE zone's manager, where the channel is a member."""
    glide: tuple[int, float] | None = None
    """A portamento: from this key, in so many seconds."""
    tuning_program: tuple[int, int] = (0, 0)
    """Bank and number of what MIDI Tuning messages set."""
    lifted: tuple[float, Touch] | None = None
    """Of a zone's member: when its key came up, in seconds, and its channel's touch then. What the channel
    says later is for its next note."""
    is_drum: bool = False
    """Its channel's keys were drums, not pitches."""


class HeldKeys:
    """Takes events in the order of time, in seconds; `notes` are those that have ended, and how long held.

    A key may be struck again while it is held: releases then end the oldest first. A note that only a pedal
    holds ends where its key is struck again, as on a piano.
    """

    def __init__(self, touch: Callable[[], Touch] = Touch) -> None:
        """`touch` tells that of the channel."""
        self.notes: list[tuple[Press, float]] = []
        self._touch = touch
        self._pedal = self._sostenuto = False
        self._held: dict[int, deque[Press]] = {}
        self._pedalled: dict[int, list[Press]] = {}
        self._caught: list[Press] = []  # keys down that were so when the sostenuto pedal went down
        self._caught_up: dict[int, list[Press]] = {}  # which have come up since, or were pedalled then

    def press(self, press: Press) -> None:
        """A key goes down. Velocity 0 is a release, as running status has it."""
        if press.velocity == 0:
            self.release(press.start, press.key)
            return
        for held in (self._pedalled, self._caught_up):
            self._end(press.start, held.pop(press.key, []))
        self._held.setdefault(press.key, deque()).append(press)

    def release(self, time: float, key: int) -> None:
        """A key comes up; one that is not down is no matter."""
        if not (presses := self._held.get(key)):
            return
        press = presses.popleft()
        is_caught = any(press is each for each in self._caught)
        if press.zone is not None:
            press = replace(press, lifted=(time, self._touch()))
        if is_caught:
            self._caught_up.setdefault(key, []).append(press)
        elif self._pedal:
            self._pedalled.setdefault(key, []).append(press)
        else:
            self._end(time, [press])

    def pedal(self, time: float, value: int) -> None:
        """The sustain pedal moves; coming up, it ends all notes whose keys are up, but those that the other
        pedal has caught."""
        self._pedal = value >= cc.SWITCHED_ON
        if not self._pedal:
            self._end_all(time, self._pedalled)

    def sostenuto(self, time: float, value: int) -> None:
        """The sostenuto pedal moves: going down, it catches what sounds, and holds that alone until it comes
        up."""
        was_down, self._sostenuto = self._sostenuto, value >= cc.SWITCHED_ON
        if self._sostenuto and not was_down:
            self._caught = [press for presses in self._held.values() for press in presses]
            self._caught_up, self._pedalled = self._pedalled, {}
        elif was_down and not self._sostenuto:
            self._caught = []
            if self._pedal:
                for key, presses in self._caught_up.items():
                    self._pedalled.setdefault(key, []).extend(presses)
                self._caught_up = {}
            self._end_all(time, self._caught_up)

    @property
    def n_down(self) -> int:
        """The number of keys that are down, each as often as it was struck and not let go."""
        return sum(map(len, self._held.values()))

    def release_all(self, time: float) -> None:
        """All keys come up; the pedals still hold what they hold."""
        for key, presses in self._held.items():
            for _ in range(len(presses)):
                self.release(time, key)

    def silence(self, time: float) -> None:
        """All notes end, the pedals' too: at the end of the piece, or where a file says so."""
        self.release_all(time)
        self._end_all(time, self._pedalled)
        self._end_all(time, self._caught_up)

    def _end_all(self, time: float, held: dict[int, list[Press]]) -> None:
        for presses in held.values():
            self._end(time, presses)
        held.clear()

    def _end(self, time: float, presses: Sequence[Press]) -> None:
        self.notes += [(press, time - press.start) for press in presses]


_PARAMETERS = frozenset(
    {cc.DATA, cc.DATA_FINE, cc.INCREMENT, cc.DECREMENT, cc.NRPN, cc.NRPN_FINE, cc.RPN, cc.RPN_FINE}
)


DRUM_CHANNEL = 10
"""As people count, from 1: its keys are drums, until a file says otherwise."""


class Channel:
    """Follows a channel's messages in the order of time."""

    def __init__(self, number: int) -> None:
        """Channels are numbered 1..16."""
        self.number = number
        self.keys = HeldKeys(self._touch)
        self.zone: Channel | None = None
        """The manager of the MPE zone that it is a member of."""
        self.bend = Steps()  # cents
        self.tuning = Steps()  # cents
        self.vibrato = Steps()  # cents
        self.pressure = Steps()  # 0..127
        self.slide = Steps(CENTRE)  # 0..127
        self.key_pressures: dict[int, Steps] = {}
        self.unperformed: Counter[str] = Counter()
        self.plays_drums = number == DRUM_CHANNEL
        self.drum_banks: frozenset[int] = frozenset()
        """Banks whose programs are drum kits, on any channel: XG and General MIDI 2 have such."""
        self._bank = self._program = 0
        self._tuning_program = (0, 0)  # bank, number
        self._states = [ChannelState(0.0)]
        self._parameters = Parameters()
        self._wheel = self._modulation = 0
        self._bend_range, self._vibrato_range = 2.0, 50.0  # semitones, cents
        self._coarse_cents = self._fine_cents = 0.0
        self._portamento = self._is_soft = False
        self._portamento_time = 0
        self._glide_from: int | None = None  # a key, by its own controller, for the next note
        self._last_key: int | None = None

    @property
    def states(self) -> tuple[ChannelState, ...]:
        """The controllers' values, each from a moment on."""
        return tuple(self._states)

    @property
    def has_drums(self) -> bool:
        """Whether its keys are drums now; in an MPE zone they are pitches like the others'."""
        return self.plays_drums and self.zone is None

    def play(self, time: float, message: Any) -> Setting | None:
        """One of mido's channel messages, `time` seconds from the beginning; returns a parameter it set."""
        match message.type:
            case "note_on":
                self._press(time, message.note, message.velocity)
            case "note_off":
                self.keys.release(time, message.note)
            case "program_change":
                self._program = message.program
                if self.drum_banks:
                    self.plays_drums = self._bank in self.drum_banks or self.number == DRUM_CHANNEL
            case "pitchwheel":
                self._wheel = message.pitch
                self._set_bend(time)
            case "aftertouch":
                self.pressure.set(time, message.value)
            case "polytouch":
                self.key_pressures.setdefault(message.note, Steps()).set(time, message.value)
            case "control_change" if message.control in _PARAMETERS:
                taken = self._parameters.take(message.control, message.value)
                if not isinstance(taken, str):
                    return taken
                self.unperformed[taken] += 1
            case "control_change":
                self.control(time, message.control, message.value)
        return None

    def control(self, time: float, control: int, value: int) -> None:
        """A controller moves; those of parameters are not among them."""
        if field := cc.STATE_FIELDS.get(control):
            self._change(time, **{field: value})
        elif control == cc.BANK:
            self._bank = value
            if value in self.drum_banks:
                return
        elif control == cc.MODULATION:
            self._modulation = value
            self._set_vibrato(time)
        elif control == cc.BRIGHTNESS:
            self.slide.set(time, value)
        elif control == cc.PEDAL:
            self.keys.pedal(time, value)
        elif control == cc.SOSTENUTO:
            self.keys.sostenuto(time, value)
        elif control == cc.SOFT_PEDAL:
            self._is_soft = value >= cc.SWITCHED_ON
        elif control == cc.PORTAMENTO:
            self._portamento = value >= cc.SWITCHED_ON
        elif control == cc.PORTAMENTO_TIME:
            self._portamento_time = value
        elif control == cc.PORTAMENTO_FROM:
            self._glide_from = value
        elif control == cc.ALL_SOUND_OFF:
            self.keys.silence(time)
        elif control == cc.RESET_CONTROLLERS:
            self._reset(time)
        elif control == cc.ALL_NOTES_OFF or cc.OMNI_OFF <= control <= cc.POLY:  # modes end notes, too
            self.keys.release_all(time)
        if control not in PERFORMED and (missed := cc.unperformed_name(control, value)):
            self.unperformed[missed] += 1

    def set_parameter(self, time: float, setting: Setting) -> None:
        """A registered parameter is set, by the file or for a member of a zone."""
        parameter, coarse, fine = setting
        self._parameters.put(*setting)
        match parameter:
            case cc.BEND_RANGE:
                self._bend_range = coarse + fine / 100.0  # semitones and cents
                self._set_bend(time)
            case cc.VIBRATO_RANGE:
                self._vibrato_range = 100.0 * (coarse + fine / 128)
                self._set_vibrato(time)
            case cc.FINE_TUNING:
                self._fine_cents = 100.0 * ((coarse << 7 | fine) - BEND_STEPS) / BEND_STEPS
                self.tuning.set(time, self._coarse_cents + self._fine_cents)
            case cc.COARSE_TUNING:
                self._coarse_cents = 100.0 * (coarse - 64)
                self.tuning.set(time, self._coarse_cents + self._fine_cents)
            case cc.TUNING_PROGRAM:
                self._tuning_program = (self._tuning_program[0], coarse)
            case cc.TUNING_BANK:
                self._tuning_program = (coarse, self._tuning_program[1])

    def power_on(self, time: float) -> None:
        """All is as it is where a file says nothing: what General MIDI's own message asks for."""
        self._reset(time)
        self._bank = self._program = self._portamento_time = 0
        self.plays_drums = self.number == DRUM_CHANNEL
        self._glide_from = self._last_key = None
        self.slide.set(time, CENTRE)
        self._change(time, volume=ChannelState.volume, pan=ChannelState.pan)
        for parameter, (coarse, fine) in cc.FIRST.items():
            self.set_parameter(time, Setting(parameter, coarse, fine))

    def change_zone(self, time: float) -> None:
        """It became a member of a zone, or is one no longer: its controllers are as at the beginning."""
        self._reset(time)
        self.slide.set(time, CENTRE)

    def _touch(self) -> Touch:
        return Touch(self.bend.last, self.vibrato.last, self.pressure.last, self.slide.last)

    def _press(self, time: float, key: int, velocity: int) -> None:
        glide = None
        if velocity:
            origin = self._glide_from
            if origin is None and self._portamento:
                origin = self._last_key
            if origin is not None:
                glide = (origin, PORTAMENTO_SECONDS * (self._portamento_time / 127) ** 2)
            self._glide_from, self._last_key = None, key
            if key in self.key_pressures:
                self.key_pressures[key].set(time, 0.0)  # what was said of it was for the stroke before
            if self._is_soft:
                velocity = max(1, int(SOFT_SHARE * velocity + 0.5))
        heard_on = self.zone or self
        program, tuning_program = heard_on._program, heard_on._tuning_program
        press = Press(time, key, velocity, program, self.zone, glide, tuning_program, None, self.has_drums)
        self.keys.press(press)

    def _set_bend(self, time: float) -> None:
        self.bend.set(time, 100.0 * self._bend_range * self._wheel / BEND_STEPS)

    def _set_vibrato(self, time: float) -> None:
        self.vibrato.set(time, self._vibrato_range * self._modulation / 127)

    def _reset(self, time: float) -> None:
        self.keys.pedal(time, 0)
        self.keys.sostenuto(time, 0)
        self._change(time, expression=127)  # volume and pan stay: General MIDI's RP-015
        self._wheel = self._modulation = 0
        self._portamento = self._is_soft = False
        self._parameters.take(cc.RPN, 127)
        self._parameters.take(cc.RPN_FINE, 127)
        self._set_bend(time)
        self._set_vibrato(time)
        for pressure in (self.pressure, *self.key_pressures.values()):
            pressure.set(time, 0.0)

    def _change(self, time: float, **values: int) -> None:
        last = self._states[-1]
        changed = replace(last, start=time, **values)
        if last.start == time:
            self._states[-1] = changed
        else:
            self._states.append(changed)


PERFORMED = frozenset(
    {
        *cc.STATE_FIELDS,
        cc.MODULATION,
        cc.BRIGHTNESS,
        cc.PEDAL,
        cc.SOSTENUTO,
        cc.SOFT_PEDAL,
        cc.PORTAMENTO,
        cc.PORTAMENTO_TIME,
        cc.PORTAMENTO_FROM,
    }
)
