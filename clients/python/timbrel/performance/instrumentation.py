"""Assigns timbres to the channels of a piece, as given or after their General MIDI programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from timbrel.core.request import Timbre
from timbrel.core.timbre import Instrument, parse_timbre
from timbrel.errors import refusal
from timbrel.library.plan.voice import NamedPoint, name_voices
from timbrel.performance.score import Score
from timbrel_bundle.timbre_map import name_key

FAMILY_SIZE = 8
"""Programs of a family, one after another."""

PROGRAMS = (
    *("Acoustic Grand Piano", "Bright Acoustic Piano", "Electric Grand Piano", "Honky-tonk Piano"),
    *("Electric Piano 1", "Electric Piano 2", "Harpsichord", "Clavinet"),
    *("Celesta", "Glockenspiel", "Music Box", "Vibraphone"),
    *("Marimba", "Xylophone", "Tubular Bells", "Dulcimer"),
    *("Drawbar Organ", "Percussive Organ", "Rock Organ", "Church Organ"),
    *("Reed Organ", "Accordion", "Harmonica", "Tango Accordion"),
    *("Acoustic Guitar (nylon)", "Acoustic Guitar (steel)", "Electric Guitar (jazz)"),
    *("Electric Guitar (clean)", "Electric Guitar (muted)", "Overdriven Guitar"),
    *("Distortion Guitar", "Guitar Harmonics"),
    *("Acoustic Bass", "Electric Bass (finger)", "Electric Bass (pick)", "Fretless Bass"),
    *("Slap Bass 1", "Slap Bass 2", "Synth Bass 1", "Synth Bass 2"),
    *("Violin", "Viola", "Cello", "Contrabass"),
    *("Tremolo Strings", "Pizzicato Strings", "Orchestral Harp", "Timpani"),
    *("String Ensemble 1", "String Ensemble 2", "Synth Strings 1", "Synth Strings 2"),
    *("Choir Aahs", "Voice Oohs", "Synth Voice", "Orchestra Hit"),
    *("Trumpet", "Trombone", "Tuba", "Muted Trumpet"),
    *("French Horn", "Brass Section", "Synth Brass 1", "Synth Brass 2"),
    *("Soprano Sax", "Alto Sax", "Tenor Sax", "Baritone Sax"),
    *("Oboe", "English Horn", "Bassoon", "Clarinet"),
    *("Piccolo", "Flute", "Recorder", "Pan Flute"),
    *("Blown Bottle", "Shakuhachi", "Whistle", "Ocarina"),
    *("Lead 1 (square)", "Lead 2 (sawtooth)", "Lead 3 (calliope)", "Lead 4 (chiff)"),
    *("Lead 5 (charang)", "Lead 6 (voice)", "Lead 7 (fifths)", "Lead 8 (bass + lead)"),
    *("Pad 1 (new age)", "Pad 2 (warm)", "Pad 3 (polysynth)", "Pad 4 (choir)"),
    *("Pad 5 (bowed)", "Pad 6 (metallic)", "Pad 7 (halo)", "Pad 8 (sweep)"),
    *("FX 1 (rain)", "FX 2 (soundtrack)", "FX 3 (crystal)", "FX 4 (atmosphere)"),
    *("FX 5 (brightness)", "FX 6 (goblins)", "FX 7 (echoes)", "FX 8 (sci-fi)"),
    *("Sitar", "Banjo", "Shamisen", "Koto"),
    *("Kalimba", "Bagpipe", "Fiddle", "Shanai"),
    *("Tinkle Bell", "Agogo", "Steel Drums", "Woodblock"),
    *("Taiko Drum", "Melodic Tom", "Synth Drum", "Reverse Cymbal"),
    *("Guitar Fret Noise", "Breath Noise", "Seashore", "Bird Tweet"),
    *("Telephone Ring", "Helicopter", "Applause", "Gunshot"),
)
"""Names by program number, from 0."""

RELATIVES = {
    **dict.fromkeys((1, 2, 3), 0),  # pianos
    **dict.fromkeys((9, 10, 14), 8),  # bells
    **dict.fromkeys((16, 17, 18, 19), 20),  # organs
    **dict.fromkeys((22, 23), 21),  # free reeds
    **dict.fromkeys((26, 27, 28, 29, 30, 31), 25),  # steel strings
    **dict.fromkeys((41, 44), 40),
    **dict.fromkeys((45, 47), 46),  # plucked and struck
    43: 42,
    **dict.fromkeys((49, 50, 51), 48),
    **dict.fromkeys((53, 54, 55), 52),
    58: 57,
    59: 56,
    **dict.fromkeys((61, 62, 63), 56),
    **dict.fromkeys((65, 66, 67), 64),
    69: 68,
    70: 71,
    **dict.fromkeys((72, 74), 73),
    **dict.fromkeys((76, 77), 75),
    78: 79,
    **dict.fromkeys((100, 101, 102, 103), 95),  # effects: synthetic pads
    **{112: 10, 113: 14, 114: 11},  # bells and steel
    115: 13,
    **dict.fromkeys((116, 117, 118), 12),  # drums with a pitch
}
"""Program -> the one that it sounds most like, where that is not plainly the next number: one of its family,
or, of families that a map may lack, of another."""

OTHER_NAMES = {
    **dict.fromkeys((16, 17, 18), "tonewheel organ"),
    114: "steel pan",
    **dict.fromkeys((47, 116, 117, 118), "tuned membrane"),
}
"""Program -> what an instrument that plays it may be called beside General MIDI's name."""

EFFECTS = frozenset(range(119, 128))
"""Programs without a pitch, from Reverse Cymbal to Gunshot: no instrument comes near one."""


_NUMBERS = {name_key(name): number for number, name in enumerate(PROGRAMS)}


def program_of(name: str) -> int | None:
    """The program number of this name, 0..127, whatever its case; None where General MIDI has none."""
    return _NUMBERS.get(name_key(name))


def kinship(program: int, other: int) -> tuple[bool, bool, int]:
    """Ranks how unlike two programs are: of the family the same, the relative, near; then of others alike."""
    return (
        program // FAMILY_SIZE != other // FAMILY_SIZE,
        other not in (program, RELATIVES.get(program, program)),
        abs(program - other),
    )


_CHANNEL = re.compile(r"\s*(\d+)\s*=(.*)", re.DOTALL)


@dataclass(frozen=True)
class AskedTimbres:
    """The timbres that the caller asks for; read before there is a server."""

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

    plays_drums: bool = False
    """Its channel was asked for by number: drums of it are played, too."""

    @property
    def program_name(self) -> str:
        return PROGRAMS[self.program]


def parse_timbres(texts: Iterable[str]) -> AskedTimbres:
    """Reads "Violin", "0.1,0.3", "2=Flute", "2=0.1,0.3". Raises InvalidRequestError: no channel 1 to 16, no
    timbre, or one channel twice."""
    everyone: Timbre | None = None
    channels: dict[int, Timbre] = {}
    for text in texts:
        if match := _CHANNEL.fullmatch(text):
            channel = int(match[1])
            if not 1 <= channel <= 16:
                raise refusal("timbre", f"{text!r} names channel {channel}; 1 to 16 are allowed")
            if channel in channels:
                raise refusal("timbre", f"channel {channel} is given twice")
            channels[channel] = parse_timbre(match[2])
        elif everyone is not None:
            raise refusal(
                "timbre", f"{text!r} is a second one for all channels; for one of them write N={text}"
            )
        else:
            everyone = parse_timbre(text)
    return AskedTimbres(everyone, channels)


def assign_parts(score: Score, asked: AskedTimbres, known: Sequence[Instrument]) -> tuple[Part, ...]:
    """A part for each channel and program that the piece has notes of; drums have one only where asked for,
    and so do EFFECTS that the map has not.

    Args:
        known: the instruments of the timbre map.

    Raises:
        InvalidRequestError: the map has no instrument of a name, a point lies outside of the disc, a channel
            has no notes, or nothing is known to choose from.
    """
    for channel in asked.channels:
        if channel not in score.channels:
            played = ", ".join(str(number) for number in score.channels)
            raise refusal("timbre", f"channel {channel} has no notes; of this piece {played} have")
    playable = {program_of(each.name) for each in known} if asked.everyone is None else EFFECTS
    wanted = {
        (note.channel, note.program)
        for note in score.notes
        if note.channel in asked.channels or not (note.is_drum or note.program in EFFECTS - playable)
    }
    return tuple(_part(channel, program, asked, known) for channel, program in sorted(wanted))


def nearest_instrument(program: int, known: Sequence[Instrument]) -> Instrument | None:
    """The instrument of the map that comes nearest to a program; None where it has none of General MIDI's."""
    return _nearest(program, _by_name(known))


def programs_played(known: Sequence[Instrument]) -> dict[str, list[int]]:
    """The programs, 0..127 but for EFFECTS, that each instrument of the map plays, by its name."""
    named = _by_name(known)
    played: dict[str, list[int]] = {}
    for program in sorted(set(range(len(PROGRAMS))) - EFFECTS):
        if (player := _nearest(program, named)) is not None:
            played.setdefault(player.name, []).append(program)
    return played


def _by_name(known: Sequence[Instrument]) -> dict[str, Instrument]:
    return {name_key(each.name): each for each in known}


def _nearest(program: int, named: Mapping[str, Instrument]) -> Instrument | None:
    other = OTHER_NAMES.get(program)
    if other is not None and other in named and name_key(PROGRAMS[program]) not in named:
        return named[other]
    numbers = [number for name, number in _NUMBERS.items() if name in named]
    if not numbers:
        return None
    nearest = min(numbers, key=lambda number: (*kinship(program, number), number))
    return named[name_key(PROGRAMS[nearest])]


def _part(channel: int, program: int, asked: AskedTimbres, known: Sequence[Instrument]) -> Part:
    timbre = asked.channels.get(channel, asked.everyone)
    if timbre is not None:
        voice = name_voices([NamedPoint.find(timbre, known)], known)[0]
        return Part(channel, program, voice.name, voice.timbre, "asked", channel in asked.channels)
    chosen = nearest_instrument(program, known) or next(iter(known), None)
    if chosen is None:
        raise refusal("timbre", "the timbre map names no instruments: give points by --timbre X,Y")
    same = name_key(chosen.name) == name_key(PROGRAMS[program])
    return Part(channel, program, chosen.name, chosen.timbre, "same name" if same else "nearest")
