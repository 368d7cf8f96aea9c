"""Octaves of the keyboard."""

from __future__ import annotations


def octave_name(pitch: int) -> str:
    """The octave of a MIDI note number, C4 = 60: "C4 to B4"."""
    number = pitch // 12 - 1
    return f"C{number} to B{number}"


OCTAVES = tuple(dict.fromkeys(octave_name(pitch) for pitch in range(128)))
"""All of them, from the lowest."""
