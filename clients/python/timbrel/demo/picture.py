"""The demo's picture: a grid of spectrograms, a row for each instrument."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.demo.notes import RenderedNote
from timbrel.errors import MissingExtraError
from timbrel.pitch import frequency
from timbrel_bundle.files import atomic_write

WINDOW = 2048
"""Samples: 12 Hz a bin at 24 kHz, fine enough to tell the lowest notes' overtones apart."""

HOP = 256
"""Samples."""

RANGE_DB = 80.0
"""What lies further below the loudest point is black."""

LOWEST_PITCH = 28
"""The picture's lower edge, as a MIDI note number: 41 Hz."""

HIGHEST_PITCH = 125
"""Its upper edge: 11 kHz."""

ROWS_PER_SEMITONE = 2

PITCH_TICKS = (36, 60, 84, 108)

Spectrogram = npt.NDArray[np.float32]
"""Level in dB, [rows, frames]; row 0 is the lowest pitch."""


def require_matplotlib() -> None:
    """
    Raises:
        MissingExtraError: matplotlib, which the demo extra brings, is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("drawing the picture", "demo") from error


def draw(results: Sequence[RenderedNote], path: Path) -> None:
    """Draws each note's spectrogram over time and pitch to a PNG file.

    A dashed line marks the pitch asked: in a note that is in tune it lies on the lowest partial.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    rows: dict[str, list[RenderedNote]] = {}
    for result in results:
        rows.setdefault(result.instrument, []).append(result)
    n_columns = max(len(row) for row in rows.values())
    longest = max(max(result.note.duration for result in results), 0.1)
    figure = Figure(figsize=(3.0 * n_columns + 0.85, 2.2 * len(rows) + 0.5))
    # Margins by hand, and no ticks but at the edges: matplotlib's own layout takes longer than the notes.
    figure.subplots_adjust(0.85 / figure.get_figwidth(), 0.5 / figure.get_figheight(), 0.99, 0.94, 0.05, 0.2)
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    for row_axes, (instrument, row) in zip(axes, rows.items(), strict=True):
        for axis, result in zip(row_axes, row, strict=False):
            _draw_note(axis, result, longest)
        for axis in row_axes[len(row) :]:
            axis.set_axis_off()
        row_axes[0].set_ylabel(f"{instrument}\nMIDI pitch")
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
