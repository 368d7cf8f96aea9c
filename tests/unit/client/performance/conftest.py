"""MIDI files and scores for the tests of performances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from requirements_gate import require_module

from timbrel.core.model import Model

Event = tuple[int, Any]
"""(tick, mido message)"""


@pytest.fixture
def write_midi(tmp_path: Path) -> Callable[..., Path]:
    """Writes tracks of (tick, message) to a file: `write_midi([(0, message)], kind=0)`."""
    require_module("mido", "midi")
    import mido

    def write(*tracks: Sequence[Event], kind: int = 1, ticks_per_beat: int = 480) -> Path:
        file = mido.MidiFile(type=kind, ticks_per_beat=ticks_per_beat)
        for events in tracks:
            track = file.add_track()
            now = 0
            for tick, message in sorted(events, key=lambda event: event[0]):
                track.append(message.copy(time=tick - now))
                now = tick
        path = tmp_path / "piece.mid"
        file.save(path)
        return path

    return write


@pytest.fixture
def model(server_address: str) -> Model:
    """What the tiny bundle's server says of itself: pitches 36..96."""
    from timbrel import Client

    with Client(server_address) as client:
        return client.model()
