"""NSynth's words for families of instruments, so that what reads its examples.json reads our manifest.

After Engel et al. 2017, "Neural Audio Synthesis of Musical Notes with WaveNet Autoencoders".
"""

from __future__ import annotations

FAMILIES = (
    "bass",
    "brass",
    "flute",
    "guitar",
    "keyboard",
    "mallet",
    "organ",
    "reed",
    "string",
    "synth_lead",
    "vocal",
)
"""In the order of their numbers."""

UNKNOWN_FAMILY = -1

SYNTHETIC = 2
"""Number of the source "synthetic", beside 0 "acoustic" and 1 "electronic"."""

_OURS = {
    "bass": "bass",
    "brass": "brass",
    "pipe": "flute",
    "winds": "flute",
    "guitar": "guitar",
    "keys": "keyboard",
    "piano": "keyboard",
    "chromatic percussion": "mallet",
    "organ": "organ",
    "reed": "reed",
    "strings": "string",
    "synth lead": "synth_lead",
}


def family_number(family: str) -> int:
    """NSynth's number for a family of the timbre map; UNKNOWN_FAMILY where it has no such family."""
    name = _OURS.get(family.casefold())
    return UNKNOWN_FAMILY if name is None else FAMILIES.index(name)


def family_name(family: str) -> str:
    """NSynth's name of it; otherwise the family's own, in small letters."""
    return _OURS.get(family.casefold(), family.casefold().replace(" ", "_") or "unknown")
