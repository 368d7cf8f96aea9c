"""The demo: notes drawn by a hash of their names, so that nobody picks the good ones; a table, a picture."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.core.timbre import Instrument
from timbrel.errors import MissingExtraError
from timbrel.note import Note
from timbrel.pitch import IN_TUNE_CENTS, frequency, is_in_tune
from timbrel_bundle.files import atomic_write

LOWEST_TRACKED = 36
HIGHEST_TRACKED = 94
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
    """Draws the notes, instrument by instrument: of as many families as there are, and `n_pitches` of each
    over the whole of its range, within the bundle's MIDI note numbers, inclusive."""
    playable = [each for each in instruments if playable_pitches(each, pitch_range)]
    return [
        PlannedNote(instrument, pitch)
        for instrument in draw_instruments(playable, n_instruments)
        for pitch in draw_pitches(instrument, n_pitches, pitch_range)
    ]


def draw_instruments(instruments: Iterable[Instrument], count: int) -> list[Instrument]:
    """The first `count` in the order of their names' hashes, each family once before any comes twice."""
    turns: dict[str, Iterator[int]] = defaultdict(itertools.count)
    by_hash = sorted(instruments, key=lambda instrument: _rank(instrument.name))
    # A key is asked for once for each, in order: how many of its family come before it.
    return sorted(by_hash, key=lambda instrument: next(turns[instrument.family]))[:count]


def playable_pitches(instrument: Instrument, pitch_range: tuple[int, int]) -> range:
    """The pitches that instrument and bundle both reach, within the limits of pitch tracking."""
    low = max(instrument.pitch_min, pitch_range[0], LOWEST_TRACKED)
    high = min(instrument.pitch_max, pitch_range[1], HIGHEST_TRACKED)
    return range(low, max(low, high + 1))


def draw_pitches(instrument: Instrument, count: int, pitch_range: tuple[int, int]) -> list[int]:
    """One pitch of each of `count` equal parts of the instrument's range: the part's lowest hash."""
    pitches = playable_pitches(instrument, pitch_range)
    count = min(count, len(pitches))
    bounds = [len(pitches) * part // max(count, 1) for part in range(count + 1)]
    parts = [pitches[start:end] for start, end in itertools.pairwise(bounds)]
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
    """Fractional MIDI note number, by whichever of two trackers is nearer to the pitch asked; None where
    neither hears one."""

    render_seconds: float
    """From the request until the audio was there."""

    @property
    def cents_off(self) -> float | None:
        """The distance of the pitch from the one asked, in cents, upwards positive."""
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
    aligned = [f"<{width}" if column < 2 else f">{width}" for column, width in enumerate(widths)]
    lines = ("  ".join(map(format, row, aligned)) for row in rows)
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


WINDOW = 2048
"""Samples: 12 Hz a bin at 24 kHz, fine enough to tell the lowest notes' overtones apart."""

HOP = 256
"""Samples."""

RANGE_DB = 80.0
"""Levels further below the loudest point are black."""

LOWEST_PITCH = 28
"""The picture's lower edge, as a MIDI note number: 41 Hz."""

HIGHEST_PITCH = 125
"""Its upper edge: 11 kHz."""

ROWS_PER_SEMITONE = 2

PITCH_TICKS = (36, 60, 84, 108)

LABELS = 1.0
"""Inches left of the spectrograms, for the instruments' names and the pitches."""
LABEL_LETTERS = 24
"""A line of a name takes so many: more would reach into the next instrument's row."""

Spectrogram = npt.NDArray[np.float32]
"""Level in dB, [rows, frames]; row 0 is the lowest pitch."""


def require_matplotlib() -> None:
    """Raises MissingExtraError where matplotlib, which the demo extra brings, is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("drawing the picture", "demo") from error


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """Has matplotlib draw by its own settings, whatever its user's are: LaTeX for every text, say. Raises as
    `require_matplotlib`."""
    require_matplotlib()
    from matplotlib import style

    with style.context("default"):
        yield


def literal(text: str) -> str:
    """The text for matplotlib, which takes what stands between dollars for mathematics."""
    return text.replace("$", r"\$")


@plain_style()
def draw(results: Sequence[RenderedNote], path: Path) -> None:
    """Draws each note's spectrogram over time and pitch to a PNG file.

    A dashed line marks the pitch asked: in a note that is in tune it lies on the lowest partial.
    """
    from matplotlib.figure import Figure

    rows: dict[str, list[RenderedNote]] = {}
    for result in results:
        rows.setdefault(result.instrument, []).append(result)
    n_columns = max(len(row) for row in rows.values())
    longest = max(max(result.note.duration for result in results), 0.1)
    figure = Figure(figsize=(3.0 * n_columns + LABELS, 2.2 * len(rows) + 0.5))
    # Margins by hand, and no ticks but at the edges: matplotlib's own layout takes longer than the notes.
    figure.subplots_adjust(
        LABELS / figure.get_figwidth(), 0.5 / figure.get_figheight(), 0.99, 0.94, 0.05, 0.2
    )
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    for row_axes, (instrument, row) in zip(axes, rows.items(), strict=True):
        for axis, result in zip(row_axes, row, strict=False):
            _draw_note(axis, result, longest)
        for axis in row_axes[len(row) :]:
            axis.set_axis_off()
        label = [*map(literal, textwrap.wrap(instrument, LABEL_LETTERS)), "MIDI pitch"]
        row_axes[0].set_ylabel("\n".join(label), fontsize=9)
        row_axes[0].set_yticks(PITCH_TICKS)
    for axis in axes[-1]:
        axis.set_xticks(np.arange(0.0, longest, 0.5))
        axis.set_xlabel("seconds")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    atomic_write(path, content.getvalue())


def spectrogram(audio: npt.NDArray[np.float32], sample_rate: int) -> Spectrogram:
    """Level in dB [rows, frames] of audio [samples], clipped RANGE_DB below its loudest point.

    Rows are evenly spaced in pitch, from LOWEST_PITCH to HIGHEST_PITCH.
    """
    padded = np.pad(audio, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    magnitude = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), axis=1)).T
    n_rows = (HIGHEST_PITCH - LOWEST_PITCH) * ROWS_PER_SEMITONE
    edges = np.linspace(LOWEST_PITCH, HIGHEST_PITCH, n_rows + 1)
    bins = np.array([frequency(edge) for edge in edges]) * WINDOW / sample_rate
    # Each row shows the loudest of its bins, and at least the nearest one.
    first = np.clip(np.round(bins[:-1]).astype(int), 0, len(magnitude) - 1)
    last = np.clip(np.round(bins[1:]).astype(int), first + 1, len(magnitude))
    loudest = np.stack([magnitude[start:end].max(axis=0) for start, end in zip(first, last, strict=True)])
    level = 20.0 * np.log10(loudest + 1e-9)
    clipped: Spectrogram = np.maximum(level, level.max() - RANGE_DB).astype(np.float32)
    return clipped


def _draw_note(axis: Any, result: RenderedNote, longest: float) -> None:
    rate = result.note.sample_rate
    level = spectrogram(result.note.audio, rate)
    extent = (0.0, level.shape[1] * HOP / rate, LOWEST_PITCH, HIGHEST_PITCH)
    axis.imshow(level, extent=extent, origin="lower", aspect="auto", cmap="magma", interpolation="nearest")
    axis.axhline(result.note.pitch, color="white", linewidth=0.6, linestyle="--", alpha=0.7)
    axis.set_xlim(0.0, longest)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_facecolor("black")
    cents = "unvoiced" if result.cents_off is None else f"{result.cents_off:+.0f} cents"
    axis.set_title(f"MIDI {result.note.pitch}, {cents}", fontsize=9)
