"""Scores as tests of performances need them."""

from __future__ import annotations

from typing import Any

from timbrel.performance.score import ChannelState, Score, ScoreNote


def score_of(*notes: ScoreNote) -> Score:
    """A piece of these notes, with no controllers moved."""
    states = {channel: (ChannelState(0.0),) for channel in range(1, 17)}
    return Score(notes, states, max(note.start + note.held for note in notes))


def score_note(pitch: int = 60, **changes: Any) -> ScoreNote:
    """A note of half a second on channel 1."""
    values: dict[str, Any] = {
        "start": 0.0,
        "held": 0.5,
        "channel": 1,
        "program": 0,
        "pitch": pitch,
        "velocity": 100,
    }
    return ScoreNote(**{**values, **changes})
