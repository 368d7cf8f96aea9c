"""File names of samples say pitch, velocity and instrument, after the patterns of sample packs.

`reed_060_v100`, `Violin_C4_mf`, `Rhodes-G#3-v2-rr1`, `violin_As3_05_forte_arco`, `Bb2 ff`, `marimba-036-c2`,
`bass_electronic_018-022-100`, `Piano_060_100`, `Piano_60_100`, `PianoC4`, `Flute C 4 mf`: words apart, note
names or MIDI numbers, dynamics or velocities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

SEMITONES = {"c": 0, "d": 2, "e": 4, "f": 5, "g": 7, "a": 9, "b": 11, "h": 11}
"""H is what Germans call B natural; their B, which is flat, is told from an English one by ear alone."""
SHARPS = ("#", "♯", "s", "is", "sharp")
MIDDLE_C_OCTAVE = 4
"""C4 is MIDI note 60. Vendors who call it C3 are found by the pitch that is measured."""

MOST_OCTAVES_OFF = 2
"""A number farther from the note beside it is not that of its key: 02_D4 counts files."""

DYNAMICS = {
    "ppp": 16, "pp": 33, "p": 49, "mp": 64, "mf": 80, "f": 96, "ff": 112, "fff": 127,
    "pianissimo": 33, "mezzopiano": 64, "mezzoforte": 80, "forte": 96, "fortissimo": 112,
}  # fmt: skip
"""The velocity that a dynamic stands for, as notation programs play them."""

MOST_LAYERS = 20
"""Where no file of an instrument says more than v20, these are layers, the softest first."""

_WORDS = re.compile(r"[^\s_.,()\[\]-]+")
_NOTE = re.compile(r"([a-h])(#|♯|s|is|sharp|b|♭|es|flat)?(\d)(?:v(\d{1,3}))?", re.IGNORECASE)
_VELOCITY = re.compile(r"(?:v|vl|vel|velocity|layer|dyn)(\d{1,3})", re.IGNORECASE)
_RUN_TOGETHER = re.compile(r"(?<=[a-z])(?=[A-H][#♯b♭]?\d(?:v\d+)?(?![^\s_.,()\[\]-]))")
"""Where a note's name follows a word without a gap: PianoC4."""
_TORN_NOTE = re.compile(r"(?<![^\s_.-])([A-H][#♯b♭]?)[\s_-](\d)(?![^\s_.,-])")
"""A note's name with a gap before its octave: C 4."""
_TORN_DYNAMIC = re.compile(r"(?<![a-z])mezzo[\s_-](?=forte|piano)", re.IGNORECASE)
_TORN_VELOCITY = re.compile(r"(?<![a-z])(vel|velocity)[\s_-](?=\d{1,3}(?!\d))", re.IGNORECASE)
"""A velocity with a gap before its number: vel_100."""
_SIGN = re.compile(r".*[\s_.]-")
"""A number behind this is one of cents or decibels, not a velocity."""
_NUMBER = re.compile(r"(.*?\D)??(\d{1,3})")
_TAKE = r"(?:(?:rr|take|rep)\d*|r\d+)"
_ROUND_ROBIN = re.compile(_TAKE, re.IGNORECASE)
_NUMBERED = re.compile(r".*[\s_.-]\d{2,3}(?:[\s_-]v\d{1,3})?", re.IGNORECASE)
_COUNTED = re.compile(r"(\d+)(?:[\s_.-]+(.+))?")
_NSYNTH = re.compile(r"(?P<instrument>.*)[-_](?P<pitch>\d{3})-(?P<velocity>\d{3})")
_PAIR = re.compile(
    rf"(?P<instrument>.*?)[-_ ]?(?<!\d)(?P<pitch>\d{{3}})[-_ ](?P<velocity>\d{{3}})(?:[-_ ]{_TAKE})?",
    re.IGNORECASE,
)
_UNPADDED_PAIR = re.compile(_PAIR.pattern.replace("{3}", "{1,3}"), re.IGNORECASE)
LOWEST_OF_PAIR = 21
"""A piano's A0: three digits below it count takes, and the pitch is what follows them."""

LEAST_BARE_VELOCITY = 20
"""A number that follows a note's name is a velocity from here up; below, it counts takes."""


@dataclass(frozen=True)
class SampleName:
    """A file's name, read. Numbers are as they stand there: they may be out of range."""

    instrument: str
    """Empty: not said."""

    pitch: int
    """MIDI note number."""

    velocity: int | None
    layer: int | None = None
    """The number that stands after a `v`, which is a velocity, or one layer of several."""


def read_names(stems: Sequence[str]) -> Sequence[SampleName | None]:
    """Reads the names of a folder's files, without their endings; None for one that says no pitch.

    Where all say the same note and numbers as well, that note is part of a name: Hammond_B3_060.
    """
    pairs = [found for found in map(_PAIR.fullmatch, stems) if found]
    are_pairs = any(map(_is_pair, pairs)) and all(int(pair["pitch"]) >= LOWEST_OF_PAIR for pair in pairs)
    if not are_pairs and (unpadded := _unpadded_pairs(stems)):
        return unpadded
    names = [read_name(stem, are_pairs) for stem in stems]
    if len({name.pitch if name else None for name in names}) == 1 and all(map(_NUMBERED.fullmatch, stems)):
        by_number = [_by_number(stem) for stem in stems]
        if len({name.pitch for name in by_number if name}) > 1 and None not in by_number:
            return by_number
    return names


def without_counts(instruments: Sequence[str]) -> list[str]:
    """Takes numbers that count one folder's files off what precedes the notes in their names, as in 01_C3,
    02_D3 or 01 Oud C3, 02 Oud D3; some may be missing. 808_C2 and 909_C2 are two instruments."""
    found = [match for match in map(_COUNTED.fullmatch, instruments) if match]
    numbers = {int(match[1]) for match in found}
    are_counts = 2 <= len(numbers) == len(instruments) and max(numbers) - min(numbers) < 2 * len(numbers)
    if are_counts and len({match[2] for match in found}) == 1:
        return [match[2] or "" for match in found]
    return list(instruments)


def _unpadded_pairs(stems: Sequence[str]) -> list[SampleName]:
    """Reads all names as pitch and velocity without zeros before them, Piano_60_100, if they are: each
    instrument has several pitches, as a Juno 106 has not, and there are more of these than velocities. Low
    numbers behind a pitch count takes."""
    found = [match for match in map(_UNPADDED_PAIR.fullmatch, stems) if match]
    names = [SampleName(_trimmed(each[1]), int(each[2]), int(each[3])) for each in found]
    pitches: dict[str, set[int]] = {}
    for name in names:
        pitches.setdefault(name.instrument, set()).add(name.pitch)
    velocities = {int(each[3]) for each in found}
    are_pairs = (
        len(names) == len(stems)
        and not any(map(_notes, stems))
        and len(velocities) < len(set().union(*pitches.values()))
        and min(velocities) >= 1
        and all(
            len(each) > 1 and LOWEST_OF_PAIR <= min(each) <= max(each) <= 127 for each in pitches.values()
        )
    )
    if are_pairs and max(velocities) < LEAST_BARE_VELOCITY:
        return [replace(name, velocity=None) for name in names]
    return names if are_pairs else []


def _is_pair(found: re.Match[str] | None) -> bool:
    """Whether two numbers of three digits are pitch and velocity beyond doubt, as in no Juno 106_060."""
    return found is not None and found["pitch"][0] == "0" and int(found["pitch"]) >= LOWEST_OF_PAIR


def read_name(stem: str, are_pairs: bool | None = None) -> SampleName | None:
    """Reads one name by itself, its numbers as pitch and velocity where those of its folder are."""
    pair = _PAIR.fullmatch(stem)
    is_pair = _is_pair(pair) if are_pairs is None else are_pairs
    if match := pair if pair and is_pair else _NSYNTH.fullmatch(stem):
        return SampleName(_trimmed(match["instrument"]), int(match["pitch"]), int(match["velocity"]))
    stem = _TORN_VELOCITY.sub(r"\1", _TORN_DYNAMIC.sub("mezzo", stem))
    notes = _notes(stem)
    if not notes and not _NUMBERED.fullmatch(f" {stem}"):
        stem = _RUN_TOGETHER.sub(" ", _TORN_NOTE.sub(r"\1\2", stem))
        notes = _notes(stem)
    if not notes:
        return _by_number(stem)
    words = list(_WORDS.finditer(stem))
    place, note = notes[-1]
    pitch, layer = note_number(note), int(note[4]) if note[4] else None
    dynamic = bare = None
    first = place
    for index, word in enumerate(words):
        text = word[0].casefold()
        if (text in DYNAMICS and not _is_letter_of_name(words, index, place)) or (
            text == "piano" and index > place
        ):
            dynamic = DYNAMICS.get(text, DYNAMICS["p"])
            first = min(first, index)
        elif found := _VELOCITY.fullmatch(text):
            layer = int(found[1])
            first = min(first, index)
        elif text.isdecimal() and index == place - 1 and _is_same_note(int(text), pitch):
            pitch, first = int(text), min(first, index)  # marimba-036-c1: the number is beyond doubt
        elif text.isdecimal() and index == place + 1 and LEAST_BARE_VELOCITY <= int(text) <= 127:
            bare = None if _SIGN.fullmatch(stem, 0, word.start()) else int(text)
    velocity = None if layer is not None else dynamic or bare
    return SampleName(_trimmed(stem[: words[first].start()]), pitch, velocity, layer)


def _is_letter_of_name(words: Sequence[re.Match[str]], index: int, place: int) -> bool:
    """Whether a P or F before the note is no dynamic but a name's, as in P Bass and Horn in F."""
    letter, before = words[index][0], words[index - 1][0].casefold() if index else ""
    in_name = index < place - 1 and (letter.isupper() or index == 0)
    return len(letter) == 1 and index < place and (in_name or before == "in")


def _notes(stem: str) -> list[tuple[int, re.Match[str]]]:
    """The words that are a note's name, with their places among all words."""
    words = enumerate(_WORDS.finditer(stem))
    return [(index, found) for index, word in words if (found := _NOTE.fullmatch(word[0]))]


def note_number(note: re.Match[str]) -> int:
    """The MIDI note number of a note's name."""
    sign = (note[2] or "").casefold()
    is_sharp = sign in SHARPS and (note[1] + sign).casefold() != "es"  # As is A sharp in English, Es no word
    step = 0 if not sign else 1 if is_sharp else -1
    return 12 * (int(note[3]) + 5 - MIDDLE_C_OCTAVE) + SEMITONES[note[1].casefold()] + step


def _by_number(stem: str) -> SampleName | None:
    """A name without a note's: its last number is the pitch, but for what counts velocities and takes; or,
    where words follow, the number that it begins with."""
    velocity: int | None = None
    layer: int | None = None
    for word in reversed(list(_WORDS.finditer(stem))):
        text = word[0].casefold()
        if found := _VELOCITY.fullmatch(text):
            layer = int(found[1])
        elif text in DYNAMICS:
            velocity = DYNAMICS[text]
        elif _ROUND_ROBIN.fullmatch(text):
            continue
        elif found := _NUMBER.fullmatch(word[0]):
            before = stem[: word.start()] + (found[1] or "")
            return SampleName(_trimmed(before), int(found[2]), None if layer is not None else velocity, layer)
        else:
            break
    if first := re.fullmatch(r"(\d{2,3})[\s_-]+(\D+)", stem):
        return SampleName(_trimmed(first[2]), int(first[1]), velocity=None)
    return None


def _is_same_note(number: int, pitch: int) -> bool:
    return number <= 127 and (number - pitch) % 12 == 0 and abs(number - pitch) <= MOST_OCTAVES_OFF * 12


def _trimmed(text: str) -> str:
    return text.rstrip(" _-.,([").lstrip(" _-.,")
