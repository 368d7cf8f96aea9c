"""A receiver of a file's messages: sixteen channels, MPE zones, and what is set for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.performance import controllers as cc
from timbrel.performance.channel import BEND_STEPS, DRUM_CHANNEL, Channel, Press
from timbrel.performance.controllers import Setting
from timbrel.performance.expression import (
    PRESSURE_DB,
    Steps,
    Times,
    as_bend,
    as_level,
    brightness_db,
    curve_times,
    glide,
    square_law_db,
    vibrato,
)
from timbrel.performance.score import ChannelState, ScoreNote
from timbrel.performance.tuning import Retunings
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents

N_CHANNELS = 16

MAX_NOTES = 100_000
MAX_POINTS = 1 << 22
"""Of the curves of all notes together: some hundred bytes each."""

MPE_BEND_RANGE = 48
"""Semitones, of the members of a zone, until a file says otherwise."""

UNIVERSAL, DEVICE_CONTROL, GENERAL_MIDI = (0x7E, 0x7F), 0x04, 0x09
MASTER_VOLUME, MASTER_FINE, MASTER_COARSE = 0x01, 0x03, 0x04
_RESETS = {
    (0x41, 0x42, 0x12, 0x40, 0x00, 0x7F, 0x00): (0, 2, 3, 4, 5, 6, 7),  # Roland's GS
    (0x43, 0x4C, 0x00, 0x00, 0x7E, 0x00): (0, 2, 3, 4, 5, 6),  # Yamaha's XG
}
"""Bytes that reset the device, and where they stand in the message: others name a device or a model."""
XG, GENERAL_MIDI_2 = 0x43, 0x03
_DRUM_BANKS = {XG: frozenset({126, 127}), GENERAL_MIDI_2: frozenset({120})}
"""By what a piece was reset to: those of a system that has others' kits by banks, too."""
_GS_DRUM_PART = (0x41, 0x42, 0x12, 0x40, 0x10, 0x15)
"""Roland's message that makes a part one of drums, or of pitches, without its device and part."""

BEYOND_BENDS = "part of a bend or glide beyond two octaves"
UNMAPPED_KEYS = "note on a key that the keyboard map leaves out"


class Receiver:
    """Takes a piece's messages in the order of time, and gives its notes, each with its curves."""

    def __init__(self, tuning: KeyCents = EQUAL_TEMPERAMENT) -> None:
        self._channels = [Channel(number) for number in range(1, N_CHANNELS + 1)]
        self._zone_sizes = {1: 0, N_CHANNELS: 0}  # manager -> members
        self._retunings = Retunings(tuning)
        self._fine, self._coarse, self._volume = Steps(), Steps(), Steps()  # cents, cents, dB
        self._unperformed: Counter[str] = Counter()
        self.drums: list[tuple[float, Any]] = []
        """(seconds, message) of channels while they have drums; first, what was said of one before."""
        self._said: dict[int, dict[int | None, Any]] = {}  # channels without drums: a kit's last settings
        self.n_never_let_go = 0
        """Notes that sounded when the piece was over, their keys down; drums are left aside."""

    @property
    def volume_db(self) -> tuple[tuple[float, float], ...]:
        """The master volume: each moment of a change, in seconds, and the dB from then on."""
        return self._volume.points

    @property
    def states(self) -> Mapping[int, tuple[ChannelState, ...]]:
        """Channel, 1..16 -> what its controllers say."""
        return {channel.number: channel.states for channel in self._channels}

    @property
    def unperformed(self) -> Counter[str]:
        """Counts of what was asked of the notes and is not heard in them; drums are left aside."""
        heard = {
            press.zone or channel
            for channel in self._channels
            for press, _ in channel.keys.notes
            if not press.is_drum
        }
        counted = [channel for channel in self._channels if channel in heard or channel.zone in heard]
        return sum((channel.unperformed for channel in counted), self._unperformed.copy())

    def play(self, time: float, message: Any) -> None:
        """One of mido's messages, `time` seconds from the beginning."""
        if message.type == "sysex":
            if not self._take_exclusive(time, message.data):
                self._unperformed["system exclusive message"] += 1
            return
        channel = self._channels[message.channel]
        if channel.has_drums:
            self.drums += [(time, said) for said in self._said.pop(message.channel, {}).values()]
            self.drums.append((time, message))
        elif message.type == "program_change" or (
            message.type == "control_change" and message.control in cc.STATE_FIELDS
        ):
            kind = message.control if message.type == "control_change" else None
            self._said.setdefault(message.channel, {})[kind] = message
        if setting := channel.play(time, message):
            self._set(time, channel, setting)
        if message.type == "control_change" and channel.zone is not None:
            self._count_own_level(channel, channel.zone, message.control)
        if message.type == "control_change" and message.control in _FOR_ZONES:
            for member in self._members(channel):
                member.control(time, message.control, message.value)

    def end_pattern(self, time: float) -> None:
        """A pattern is over and another begins: what sounds is let go. What was set stays, since the first
        pattern of some files does nothing else."""
        for channel in self._channels:
            self.n_never_let_go += 0 if channel.has_drums else channel.keys.n_down
            channel.keys.silence(time)

    def finish(self, time: float) -> list[ScoreNote]:
        """The piece is over: what still sounds is let go. Returns its notes, in no order. Raises ValueError:
        there are more of them, or of the points of their curves, than are performed."""
        notes: list[ScoreNote] = []
        n_points = 0
        self.end_pattern(time)
        for channel in self._channels:
            for press, held in channel.keys.notes:
                if self._retunings.is_silent(press.key) and not press.is_drum:
                    self._unperformed[UNMAPPED_KEYS] += 1
                else:
                    note = self._note(channel, press, held)
                    n_points += len(note.level_db) + len(note.brightness_db)
                    n_points += 0 if isinstance(note.cents, float) else len(note.cents)
                    if len(notes) == MAX_NOTES or n_points > MAX_POINTS:
                        allowed = f"up to {MAX_NOTES}, of {MAX_POINTS} points of bends and levels together"
                        raise ValueError(f"it holds more notes than are performed: {allowed}")
                    notes.append(note)
        return notes

    def _count_own_level(self, member: Channel, manager: Channel, control: int) -> None:
        """Volume, pan and expression of a zone are its manager's; a member's are missed where they differ."""
        if field := cc.STATE_FIELDS.get(control):
            differs = getattr(member.states[-1], field) != getattr(manager.states[-1], field)
            self._unperformed[f"{field} of single MPE notes"] += differs

    def _note(self, channel: Channel, press: Press, held: float) -> ScoreNote:
        """A note with its curves; a drum, too, which a timbre may be asked to play."""
        heard_on = press.zone or channel
        times = curve_times(press.start, held)
        voices = [channel] if press.zone is None else [channel, press.zone]
        tuned = self._fine.at(times) + self._coarse.at(times) + heard_on.tuning.at(times)
        of_key = self._retunings.cents(press.tuning_program, channel.number - 1, press.key, times)
        tuned += of_key
        if press.zone is not None:
            tuned += channel.tuning.at(times)
        shift = round(tuned[0] / 100.0)
        moved = np.asarray(sum(_values("bend", press, voices, times)))
        if press.glide is not None:
            origin, seconds = press.glide
            of_origin = self._retunings.cents(press.tuning_program, channel.number - 1, origin, times[:1])
            moved += glide(100.0 * (origin - press.key) + of_origin[0] - of_key[0], seconds, times)
        depth = np.maximum.reduce(_values("vibrato", press, voices, times))
        bend, beyond = as_bend(tuned - 100.0 * shift + moved + vibrato(depth, times), times)
        self._unperformed[BEYOND_BENDS] += beyond and not press.is_drum
        pressure = _pressure_db(press, voices, times)
        slides = [brightness_db(each) for each in _values("slide", press, voices, times)]
        return ScoreNote(
            *(press.start, held, heard_on.number, press.program, press.key + shift, press.velocity),
            cents=bend,
            level_db=as_level(pressure + self._volume.at(times), times),
            brightness_db=as_level(pressure + sum(slides), times),
            is_drum=press.is_drum,
        )

    def _set(self, time: float, channel: Channel, setting: Setting) -> None:
        """A registered parameter was set on a channel."""
        if setting.parameter == cc.MPE_ZONE:
            if channel.number in self._zone_sizes:
                self._configure(time, channel.number, setting.coarse)
            else:
                self._unperformed["MPE zone on another channel than 1 and 16"] += 1
            return
        # Of a zone's members, one speaks for all.
        alike = [channel]
        if setting.parameter == cc.BEND_RANGE and channel.zone is not None:
            alike = self._members(channel.zone)
        for each in alike:
            each.set_parameter(time, setting)

    def _configure(self, time: float, manager: int, n_members: int) -> None:
        """MPE's configuration message: a zone is made, resized or, with no members, undone. The zone's ranges
        are anew what MPE begins with, and so is all of a channel that enters a zone or leaves one."""
        other = N_CHANNELS + 1 - manager
        n_members = min(n_members, N_CHANNELS - 1)
        self._zone_sizes[manager] = n_members
        if n_members:  # the other manager needs its channel, too
            self._zone_sizes[other] = min(self._zone_sizes[other], max(N_CHANNELS - 2 - n_members, 0))
        before = [channel.zone for channel in self._channels]
        for channel in self._channels:
            channel.zone = None
        for number, size in self._zone_sizes.items():
            first = 1 if number == 1 else N_CHANNELS - 1 - size
            for channel in self._channels[first : first + size]:
                channel.zone = self._channels[number - 1]
        for channel, zone in zip(self._channels, before, strict=True):
            if channel.zone is not zone:
                channel.change_zone(time)
            elif manager not in (channel.number, zone and zone.number):
                continue
            coarse, fine = (MPE_BEND_RANGE, 0) if channel.zone is not None else cc.FIRST[cc.BEND_RANGE]
            channel.set_parameter(time, Setting(cc.BEND_RANGE, coarse, fine))

    def _members(self, manager: Channel) -> list[Channel]:
        return [channel for channel in self._channels if channel.zone is manager]

    def _take_exclusive(self, time: float, data: Sequence[int]) -> bool:
        """A system exclusive message, without the bytes around it; False where it is not obeyed."""
        for pattern, places in _RESETS.items():
            if len(data) > places[-1] and tuple(data[place] for place in places) == pattern:
                self._power_on(time, _DRUM_BANKS.get(data[0]))
                return True
        if len(data) > 7 and (data[0], *data[2:5], data[5] & 0xF0, data[6]) == _GS_DRUM_PART:
            part = data[5] & 0xF  # 0 is that of channel 10, 1 to 9 those below, the rest those above
            number = part + (part >= DRUM_CHANNEL) if part else DRUM_CHANNEL
            self._channels[number - 1].plays_drums = data[7] != 0
            return True
        if len(data) < 4 or data[0] not in UNIVERSAL:
            return False
        if data[0] == UNIVERSAL[0] and data[2] == GENERAL_MIDI:
            self._power_on(time, _DRUM_BANKS.get(data[3]))
            return True
        if data[0] == UNIVERSAL[1] and data[2] == DEVICE_CONTROL and len(data) >= 6:
            value = data[5] << 7 | data[4]
            if data[3] == MASTER_FINE:
                self._fine.set(time, 100.0 * (value - BEND_STEPS) / BEND_STEPS)
            elif data[3] == MASTER_COARSE:
                self._coarse.set(time, 100.0 * (data[5] - 64))
            elif data[3] == MASTER_VOLUME:
                share = np.array([value / (2 * BEND_STEPS - 1)])
                self._volume.set(time, float(square_law_db(share)[0]))
            return data[3] in (MASTER_FINE, MASTER_COARSE, MASTER_VOLUME)
        return self._retunings.take(time, data)

    def _power_on(self, time: float, drum_banks: frozenset[int] | None) -> None:
        for channel in self._channels:
            channel.zone = None
            channel.drum_banks = drum_banks or frozenset()
            channel.power_on(time)
        self._zone_sizes = dict.fromkeys(self._zone_sizes, 0)
        self._retunings.power_on(time)
        for steps in (self._fine, self._coarse, self._volume):
            steps.set(time, 0.0)


def _values(
    controller: str, press: Press, voices: Sequence[Channel], times: Times
) -> list[npt.NDArray[np.float64]]:
    """A controller's values for each of a note's channels. Those of a zone's member stay where they were when
    the key came up: MPE has what follows be the channel's next note's."""
    values: list[npt.NDArray[np.float64]] = [getattr(each, controller).at(times) for each in voices]
    if press.lifted is not None:
        seconds, touch = press.lifted
        values[0] = np.where(times < seconds, values[0], getattr(touch, controller))
    return values


def _pressure_db(press: Press, voices: Sequence[Channel], times: Times) -> npt.NDArray[np.float64]:
    pressures = _values("pressure", press, voices, times)
    of_key = [each.key_pressures[press.key] for each in voices if press.key in each.key_pressures]
    return np.asarray(
        PRESSURE_DB / 127 * np.maximum.reduce([*pressures, *(each.at(times) for each in of_key)])
    )


_FOR_ZONES = frozenset(
    {
        *(cc.PEDAL, cc.SOSTENUTO, cc.SOFT_PEDAL, cc.PORTAMENTO, cc.PORTAMENTO_TIME),
        *(cc.ALL_SOUND_OFF, cc.ALL_NOTES_OFF, cc.RESET_CONTROLLERS),
    }
)
"""What a zone's manager says to all of its members."""
