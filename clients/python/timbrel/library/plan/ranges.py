"""Pitches, velocities and chords as people write them: "48-84:3", "C3-C6", "40,80,120", "maj,min7,0-5-10"."""

from __future__ import annotations

import re

from timbrel.errors import refusal
from timbrel.pitch import parse_pitch

HIGHEST = 127
"""The largest MIDI note number and velocity."""

CHORDS = {
    "maj": (0, 4, 7),
    "min": (0, 3, 7),
    "dim": (0, 3, 6),
    "aug": (0, 4, 8),
    "sus2": (0, 2, 7),
    "sus4": (0, 5, 7),
    "5": (0, 7, 12),
    "6": (0, 4, 7, 9),
    "min6": (0, 3, 7, 9),
    "7": (0, 4, 7, 10),
    "maj7": (0, 4, 7, 11),
    "min7": (0, 3, 7, 10),
    "dim7": (0, 3, 6, 9),
    "min7b5": (0, 3, 6, 10),
    "9": (0, 4, 7, 10, 14),
    "maj9": (0, 4, 7, 11, 14),
    "min9": (0, 3, 7, 10, 14),
}
"""Names of chords -> semitones of their tones above the lowest."""

MAX_TONES = 12
HIGHEST_INTERVAL = 36

_PITCH = r"(?:[A-Ga-g][#♯b♭]?-?\d{1,2}|\d{1,3})"
_PITCH_RANGE = re.compile(rf"({_PITCH})(?:-({_PITCH})(?::(\d{{1,3}}))?)?")
_INTERVALS = re.compile(r"\d{1,3}(?:-\d{1,3})+")
_VELOCITY_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3})(?::(\d{1,3}))?)?")


def parse_pitches(text: str) -> tuple[int, ...]:
    """Reads MIDI note numbers or names, ranges and steps: "48-84:3", "C3-C6:3", "60", "48,52,G#4".

    C4 is 60. A range holds both ends where the step meets them. Returns each pitch once, rising.

    Raises:
        InvalidRequestError: something else stands there, or nothing does.
    """
    return _parse(text, "pitches", _PITCH_RANGE, "48-84:3, C3-C6:3 or 48,52,G#4", 0)


def parse_velocities(text: str) -> tuple[int, ...]:
    """Reads MIDI velocities, ranges and steps: "40,80,120", "20-120:20". Each once, rising.

    Raises as `parse_pitches` does.
    """
    return _parse(text, "velocities", _VELOCITY_RANGE, "40,80,120 or 20-120:20", 1)


def parse_chords(text: str) -> dict[str, tuple[int, ...]]:
    """Reads chords by name, or by their semitones above the key: "maj,min7,0-5-10". Each once, as written.
    Raises InvalidRequestError: something else stands there, or nothing does."""
    return {part.strip(): _chord(part.strip()) for part in text.split(",")}


def _chord(text: str) -> tuple[int, ...]:
    if text in CHORDS:
        return CHORDS[text]
    tones = tuple(int(each) for each in text.split("-")) if _INTERVALS.fullmatch(text) else ()
    if len(set(tones)) < 2:
        raise refusal(
            "chords",
            f"{text!r} is not understood; write {', '.join(CHORDS)}, or semitones, for example 0-5-10",
        )
    if len(tones) > MAX_TONES or max(tones) > HIGHEST_INTERVAL:
        raise refusal(
            "chords", f"{text} is too large; {MAX_TONES} tones up to {HIGHEST_INTERVAL} semitones are allowed"
        )
    return tuple(sorted(set(tones)))


def _parse(text: str, field: str, pattern: re.Pattern[str], example: str, lowest: int) -> tuple[int, ...]:
    values: set[int] = set()
    for part in text.split(","):
        match = pattern.fullmatch(part.strip())
        if match is None:
            raise refusal(field, f"{part.strip()!r} is not understood; write {example}")
        values.update(_range(match, part.strip(), field, lowest))
    return tuple(sorted(values))


def _range(match: re.Match[str], part: str, field: str, lowest: int) -> range:
    first, last, step = match.group(1, 2, 3)
    low = _number(first, field, lowest)
    high = low if last is None else _number(last, field, lowest)
    if high < low:
        raise refusal(field, f"{part!r} runs downwards; write the lower end first, {last}-{first}")
    if step is not None and int(step) < 1:
        raise refusal(field, f"{part!r} has a step of {step}; 1 or more is allowed")
    return range(low, high + 1, 1 if step is None else int(step))


def _number(text: str, field: str, lowest: int) -> int:
    """Reads a MIDI number from its digits or, of a pitch, its name."""
    value = parse_pitch(text)
    if not lowest <= value <= HIGHEST:
        raise refusal(field, f"{text} is out of range; {lowest} to {HIGHEST} is allowed")
    return value
