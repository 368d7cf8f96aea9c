"""Pictures for a page: spectrograms as PNG, the map as SVG; both go into the page itself."""

from __future__ import annotations

import base64
import colorsys
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

DEPTH_DB = 60.0
"""Below the loudest, all is drawn as silence."""
PIXELS_PER_BAND = 2


def spectrogram_uri(mel: NDArray[np.float32], peak_db: float) -> str:
    """A data URI of a PNG: time to the right, one pixel a frame; low bands at the bottom.

    Args:
        mel: [frames, bands], in dB.
        peak_db: what is drawn brightest.
    """
    from matplotlib.image import imsave

    picture = np.repeat(mel.T, PIXELS_PER_BAND, axis=0)
    file = io.BytesIO()
    imsave(file, picture, cmap="magma", vmin=peak_db - DEPTH_DB, vmax=peak_db, origin="lower", format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def map_svg(
    points: NDArray[np.float64],
    names: Sequence[str],
    families: Sequence[str],
    located: NDArray[np.float64],
    located_families: Sequence[str],
) -> str:
    """The map as an SVG element: the disc, where notes landed as dots, the instruments as labelled points.

    Args:
        points: [instruments, 2], published.
        names, families: of the instruments.
        located: [notes, 2], where notes landed.
        located_families: of those notes.
    """
    colours = family_colours(families)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="map" viewBox="-1.08 -1.08 2.5 2.16" role="img" '
        'aria-label="the timbre map" font-family="sans-serif">',
        '<rect x="-1.08" y="-1.08" width="2.5" height="2.16" fill="white"/>',
        '<circle r="1" fill="none" stroke="#bbb" stroke-width="0.004"/>',
    ]
    for (x, y), family in zip(located, located_families, strict=True):
        parts.append(
            f'<circle cx="{x:.3f}" cy="{-y:.3f}" r="0.006" fill="{colours[family]}" opacity="0.45"/>'
        )
    for (x, y), name, family in zip(points, names, families, strict=True):
        parts.append(
            f'<circle cx="{x:.3f}" cy="{-y:.3f}" r="0.018" fill="{colours[family]}" stroke="#222" '
            f'stroke-width="0.004"/><text x="{x + 0.025:.3f}" y="{-y + 0.012:.3f}" font-size="0.036">'
            f"{escape(name)}</text>"
        )
    for number, (family, colour) in enumerate(colours.items()):
        y = -1.0 + 0.06 * number
        parts.append(
            f'<circle cx="1.06" cy="{y:.3f}" r="0.016" fill="{colour}"/>'
            f'<text x="1.09" y="{y + 0.012:.3f}" font-size="0.036">{escape(family)}</text>'
        )
    return "".join([*parts, "</svg>"])


def family_colours(families: Sequence[str]) -> dict[str, str]:
    """A colour for each family, in their order."""
    names = list(dict.fromkeys(families))
    colours = {}
    for number, name in enumerate(names):
        lightness = 0.42 if number % 2 else 0.58
        rgb = colorsys.hls_to_rgb(number / len(names), lightness, 0.7)
        colours[name] = "#" + "".join(f"{round(255 * channel):02x}" for channel in rgb)
    return colours
