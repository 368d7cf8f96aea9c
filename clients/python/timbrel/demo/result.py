"""What became of the demo's notes: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from timbrel.note import Note
from timbrel.pitch import IN_TUNE_CENTS, is_in_tune


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
