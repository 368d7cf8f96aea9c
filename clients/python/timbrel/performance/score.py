"""The score of a MIDI file, in seconds: its notes, and how loud and where each channel is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
    """MIDI note number."""

    velocity: int
    """1..127."""


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

    n_pitch_bends: int
    """Movements of pitch wheels, which are not played."""

    @property
    def channels(self) -> tuple[int, ...]:
        """The channels with notes, in order."""
        return tuple(sorted({note.channel for note in self.notes}))
