"""A note as notebooks show it: a player with the sound in it, its waveform, and what it is."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape

import numpy as np
import numpy.typing as npt

from timbrel.audio import audio_bytes

WIDTH, HEIGHT = 600, 80
"""Of the waveform, in its own units; it takes the page's width."""

N_COLUMNS = 300
"""Points along the waveform's outline."""

_STYLE = "font-family:system-ui,sans-serif;max-width:40em"


def note_html(
    title: str,
    facts: Mapping[str, str],
    audio: npt.NDArray[np.float32] | None,
    sample_rate: int,
    trouble: str = "",
) -> str:
    """One <div> that needs nothing else: no script, no file, no network.

    Args:
        facts: name -> value, in order.
        audio: [samples]; None where it could not be decoded.
        trouble: why not.
    """
    rows = "".join(
        f'<span style="white-space:nowrap"><span style="opacity:.65">{escape(name)}</span>'
        f"&nbsp;{escape(value)}</span> "
        for name, value in facts.items()
    )
    sound = (
        f"<p>{escape(trouble)}</p>" if audio is None else waveform_svg(audio) + _player(audio, sample_rate)
    )
    return (
        f'<div style="{_STYLE}"><div><strong>{escape(title)}</strong></div>{sound}'
        f'<div style="font-size:90%;display:flex;flex-wrap:wrap;gap:.2em 1.2em">{rows}</div></div>'
    )


def waveform_svg(audio: npt.NDArray[np.float32]) -> str:
    """The outline of audio [samples] as inline SVG in the text's colour, scaled to its loudest moment."""
    lowest, highest = outline(audio, N_COLUMNS)
    peak = max(float(np.abs(audio).max(initial=0.0)), 1e-9)
    scale = (HEIGHT / 2 - 2) / peak
    x = np.linspace(0, WIDTH, len(highest))
    points = [
        *(f"{x:.1f},{HEIGHT / 2 - scale * y:.1f}" for x, y in zip(x, highest, strict=True)),
        *(f"{x:.1f},{HEIGHT / 2 - scale * y:.1f}" for x, y in zip(x[::-1], lowest[::-1], strict=True)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="waveform" preserveAspectRatio="none" '
        f'style="width:100%;height:{HEIGHT}px;display:block">'
        f'<line x1="0" y1="{HEIGHT / 2:g}" x2="{WIDTH}" y2="{HEIGHT / 2:g}" stroke="currentColor" '
        f'stroke-opacity="0.3"/>'
        f'<polygon points="{" ".join(points)}" fill="currentColor" fill-opacity="0.75"/></svg>'
    )


def outline(
    audio: npt.NDArray[np.float32], n_columns: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The lowest and the highest sample of each of `n_columns` stretches: fewer for a shorter sound."""
    if len(audio) == 0:
        zero = np.zeros(1, dtype=np.float32)
        return zero, zero
    starts = np.unique(np.linspace(0, len(audio), n_columns, endpoint=False).astype(int))
    return np.minimum.reduceat(audio, starts), np.maximum.reduceat(audio, starts)


def _player(audio: npt.NDArray[np.float32], sample_rate: int) -> str:
    """FLAC, which every browser plays and which loses nothing."""
    data = base64.b64encode(audio_bytes(audio, sample_rate, ".flac")).decode("ascii")
    return f'<audio controls preload="auto" style="width:100%" src="data:audio/flac;base64,{data}"></audio>'
