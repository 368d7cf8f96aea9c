"""The demo's notes: drawn by a hash of the names, so that nobody picks the good ones, and told in a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from timbrel.core.timbre import Instrument
from timbrel.note import Note
from timbrel.pitch import IN_TUNE_CENTS, is_in_tune

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


@dataclass(frozen=True)
class RenderedNote:
    """One of the demo's notes, written and measured."""

    file: str
    """File name within the demo's folder."""

    instrument: str
    note: Note

    pitch_measured: float | None
    """Fractional MIDI note number; None where nothing is voiced."""

    render_seconds: float
    """From the request until the audio was there."""

    @property
    def cents_off(self) -> float | None:
        """How far the pitch is from the one asked, in cents, upwards positive."""
        return None if self.pitch_measured is None else 100.0 * (self.pitch_measured - self.note.pitch)

    @property
    def in_tune(self) -> bool:
        return is_in_tune(self.note.pitch, self.pitch_measured)

    @property
    def times_real_time(self) -> float:
        """Seconds of sound per second of rendering."""
        return self.note.duration / self.render_seconds

    def to_json(self) -> dict[str, object]:
        measured = self.pitch_measured
        return {
            "file": self.file,
            "instrument": self.instrument,
            "timbre": list(self.note.timbre),
            "pitch": self.note.pitch,
            "velocity": self.note.velocity,
            "seconds": self.note.seconds,
            "seed": self.note.seed,
            "pitch_measured": None if measured is None else round(measured, 4),
            "truncated": self.note.truncated,
            "render_seconds": round(self.render_seconds, 4),
            "audio_seconds": round(self.note.duration, 4),
        }


def notes_json(results: Sequence[RenderedNote]) -> str:
    """A list of objects, one a note."""
    return json.dumps([result.to_json() for result in results], indent=2) + "\n"


def summary(results: Sequence[RenderedNote]) -> str:
    """The demo's last word: "N of M within 50 cents"."""
    return f"{sum(result.in_tune for result in results)} of {len(results)} within {IN_TUNE_CENTS:.0f} cents"


COLUMNS = ("file", "timbre", "pitch asked", "measured", "cents off", "render s", "x real time")


def table(results: Sequence[RenderedNote]) -> str:
    """The results under a heading, columns aligned: text to the left, numbers to the right."""
    rows = [COLUMNS, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ("  ".join(_align(cell, widths[i], left=i < 2) for i, cell in enumerate(row)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _row(result: RenderedNote) -> tuple[str, ...]:
    x, y = result.note.timbre
    measured, cents = result.pitch_measured, result.cents_off
    return (
        result.file,
        f"{result.instrument} ({x:+.2f}, {y:+.2f})",
        str(result.note.pitch),
        "unvoiced" if measured is None else f"{measured:.2f}",
        "-" if cents is None else f"{cents:+.0f}",
        f"{result.render_seconds:.2f}",
        f"{result.times_real_time:.1f}",
    )


def _align(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)
