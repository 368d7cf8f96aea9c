"""Which notes the demo renders: drawn by a hash of the names, so that nobody picks the good ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from timbrel.core.timbre import Instrument

LOWEST_PITCH = 36
HIGHEST_PITCH = 94
"""Outside these, pitch trackers err more than instruments do."""


@dataclass(frozen=True)
class PlannedNote:
    """A note to render."""

    instrument: Instrument
    pitch: int
    """MIDI note number."""

    @property
    def file_name(self) -> str:
        """Named by the MIDI number: octave names mean different pitches to different people."""
        words = "".join(letter if letter.isalnum() else " " for letter in self.instrument.name).split()
        return f"{'-'.join(words).lower()}_{self.pitch:03d}.wav"


def plan_notes(
    instruments: Sequence[Instrument], n_instruments: int, n_pitches: int, pitch_range: tuple[int, int]
) -> list[PlannedNote]:
    """Draws the notes, instrument by instrument.

    Args:
        instruments: the timbre map.
        n_instruments: how many to draw, of as many families as there are; fewer where there are fewer.
        n_pitches: how many pitches of each, over the whole of its range.
        pitch_range: MIDI note numbers that the bundle accepts, inclusive.
    """
    playable = [each for each in instruments if playable_pitches(each, pitch_range)]
    return [
        PlannedNote(instrument, pitch)
        for instrument in draw_instruments(playable, n_instruments)
        for pitch in draw_pitches(instrument, n_pitches, pitch_range)
    ]


def draw_instruments(instruments: Iterable[Instrument], count: int) -> list[Instrument]:
    """The first `count` in the order of their names' hashes, each family once before any comes twice."""
    by_hash = sorted(instruments, key=lambda instrument: _rank(instrument.name))
    seen: dict[str, int] = {}
    rounds: list[tuple[int, Instrument]] = []
    for instrument in by_hash:
        turn = seen.get(instrument.family, 0)
        seen[instrument.family] = turn + 1
        rounds.append((turn, instrument))
    rounds.sort(key=lambda entry: entry[0])
    return [instrument for _, instrument in rounds[:count]]


def playable_pitches(instrument: Instrument, pitch_range: tuple[int, int]) -> range:
    """What instrument and bundle both reach, within the limits of pitch tracking."""
    low = max(instrument.pitch_min, pitch_range[0], LOWEST_PITCH)
    high = min(instrument.pitch_max, pitch_range[1], HIGHEST_PITCH)
    return range(low, max(low, high + 1))


def draw_pitches(instrument: Instrument, count: int, pitch_range: tuple[int, int]) -> list[int]:
    """One pitch of each of `count` equal parts of the instrument's range: the part's lowest hash."""
    pitches = playable_pitches(instrument, pitch_range)
    count = min(count, len(pitches))
    bounds = [len(pitches) * part // max(count, 1) for part in range(count + 1)]
    parts = [pitches[start:end] for start, end in pairwise(bounds)]
    return [min(part, key=lambda pitch: _rank(f"{instrument.name} {pitch}")) for part in parts]


def _rank(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
