"""The score of a MIDI file, in seconds: its notes, and how loud and where each channel is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from timbrel.performance.expression import Curve


@dataclass(frozen=True)
class ScoreNote:
    """One note of a piece."""

    start: float
    """Seconds from the beginning of the piece."""

    held: float
    """Seconds until it is let go, by the key or the pedal, whichever is later."""

    channel: int
    """1..16, as people count."""

    program: int
    """The channel's General MIDI program at the start, 0..127."""

    pitch: int
    """MIDI note number, tuned to the nearest semitone."""

    velocity: int
    """1..127."""

    cents: float | Curve = 0.0
    """How far from its pitch it sounds: a number, or points (seconds since its start, cents)."""

    level_db: Curve = ()
    """How much louder it is than it was struck: points (seconds since its start, dB)."""

    brightness_db: Curve = ()
    """How much louder its high partials are, beside the low ones: points (seconds since its start, dB)."""

    is_drum: bool = False
    """Its key is a drum, and no pitch."""


@dataclass(frozen=True)
class ChannelState:
    """A channel's controllers from a moment on."""

    start: float
    """Seconds."""

    volume: int = 100
    """Controller 7."""

    expression: int = 127
    """Controller 11."""

    pan: int = 64
    """Controller 10: 0 left, 64 middle, 127 right."""


@dataclass(frozen=True)
class Score:
    """A piece."""

    notes: tuple[ScoreNote, ...]
    """By start, then channel and pitch."""

    states: Mapping[int, tuple[ChannelState, ...]]
    """Channel -> what its controllers say, by start; the first begins at 0."""

    seconds: float
    """Until the last event."""

    unperformed: Mapping[str, int] = field(default_factory=dict)
    """What the file asks for and is not played -> how many times."""

    remarks: tuple[str, ...] = ()
    """What is strange about the file, a line each."""

    track_names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Channel -> the tracks that its notes are in, by name or as "track 2"."""

    drums: tuple[tuple[float, Any], ...] = ()
    """(seconds, mido message) of the channels with drums, while they have them."""

    volume_db: tuple[tuple[float, float], ...] = ()
    """The master volume, which is in the notes' own levels already: (seconds, dB from then on)."""

    @property
    def channels(self) -> tuple[int, ...]:
        """The channels with notes, in order."""
        return tuple(sorted({note.channel for note in self.notes}))
