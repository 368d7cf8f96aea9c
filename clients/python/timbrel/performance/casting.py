"""Who plays what: timbres for the channels of a piece, as given or after their General MIDI programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from timbrel.core.timbre import Instrument, parse_timbre
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.library.plan.voice import NamedPoint, Timbre, name_voices
from timbrel.performance.general_midi import (
    DRUM_CHANNEL,
    PROGRAMS,
    kinship,
    normal_name,
    program_of,
)
from timbrel.performance.score import Score

_CHANNEL = re.compile(r"\s*(\d+)\s*=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Casting:
    """What the caller wants; read before there is a server."""

    everyone: Timbre | None = None
    """For every channel without a wish of its own; None: after the programs."""

    channels: Mapping[int, Timbre] = field(default_factory=dict)
    """Channel, 1..16, -> its timbre."""


@dataclass(frozen=True)
class Part:
    """A channel's notes of one program, and who plays them."""

    channel: int
    program: int
    player: str
    """An instrument's name, or the point."""

    timbre: tuple[float, float]
    """The point (x, y)."""

    reason: str
    """"asked", "same name" or "nearest"."""

    @property
    def program_name(self) -> str:
        return PROGRAMS[self.program]


def parse_casting(texts: Iterable[str]) -> Casting:
    """Reads "Violin", "0.1,0.3", "2=Flute", "2=0.1,0.3".

    Raises:
        InvalidRequestError: no channel 1 to 16, no timbre, or one channel twice.
    """
    everyone: Timbre | None = None
    channels: dict[int, Timbre] = {}
    for text in texts:
        if match := _CHANNEL.fullmatch(text):
            channel = int(match[1])
            if not 1 <= channel <= 16:
                raise _refusal(f"{text!r} names channel {channel}; 1 to 16 are allowed")
            if channel in channels:
                raise _refusal(f"channel {channel} is given twice")
            channels[channel] = parse_timbre(match[2])
        elif everyone is not None:
            raise _refusal(f"{text!r} is a second one for all channels; for one of them write N={text}")
        else:
            everyone = parse_timbre(text)
    return Casting(everyone, channels)


def cast(score: Score, casting: Casting, known: Sequence[Instrument]) -> tuple[Part, ...]:
    """A part for each channel and program that the piece has notes of; drums have one only where asked for.

    Args:
        known: the instruments of the timbre map.

    Raises:
        InvalidRequestError: the map has no instrument of a name, a point lies outside of the disc, a channel
            has no notes, or nothing is known to choose from.
    """
    for channel in casting.channels:
        if channel not in score.channels:
            played = ", ".join(str(number) for number in score.channels)
            raise _refusal(f"channel {channel} has no notes; of this piece {played} have")
    wanted = sorted({(note.channel, note.program) for note in score.notes})
    return tuple(
        _part(channel, program, casting, known)
        for channel, program in wanted
        if channel != DRUM_CHANNEL or channel in casting.channels
    )


def nearest_instrument(program: int, known: Sequence[Instrument]) -> Instrument | None:
    """The instrument of the map that comes nearest to a program; None where it has none of General MIDI's."""
    numbered = [(number, each) for each in known if (number := program_of(each.name)) is not None]
    if not numbered:
        return None
    return min(numbered, key=lambda pair: (*kinship(program, pair[0]), pair[0]))[1]


def _part(channel: int, program: int, casting: Casting, known: Sequence[Instrument]) -> Part:
    asked = casting.channels.get(channel, casting.everyone)
    if asked is not None:
        voice = name_voices([NamedPoint.find(asked, known)], known)[0]
        return Part(channel, program, voice.name, voice.timbre, "asked")
    chosen = nearest_instrument(program, known) or next(iter(known), None)
    if chosen is None:
        raise _refusal("the timbre map names no instruments: give points by --timbre X,Y")
    same = normal_name(chosen.name) == normal_name(PROGRAMS[program])
    return Part(channel, program, chosen.name, chosen.timbre, "same name" if same else "nearest")


def _refusal(description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("timbre", description)])
