"""report.html: the report for reading, with its pictures, in one file that needs nothing else."""

from __future__ import annotations

import base64
import colorsys
import io
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from timbrel.timbre_map.picture import MOST_NAMES, Box, place_labels
from timbrel_posttraining.evaluate.evaluation_set import JUDGED, EvaluationSet, Kind
from timbrel_posttraining.evaluate.report import CellValue, Figure, Report, SectionReport, Table, show_cell
from timbrel_posttraining.evaluate.sections.fidelity import Fidelity
from timbrel_posttraining.evaluate.takes import Measurements

DEPTH_DB = 60.0
"""Below the loudest, all is drawn as silence."""
PIXELS_PER_BAND = 2

ACROSS, UP, FAMILIES = 1.3, 1.08, 0.5
"""So far the map's picture reaches, in units of the map, and so wide are the families' names beside it."""
TEXT, LETTER = 0.026, 0.56
"""The height of the names there, and how much of that a letter is wide in the mean."""
MARK = 0.012
"""The radius of a point's mark."""

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; } p { max-width: 50rem; } .small { color: #666; font-size: 0.87rem; }
table { border-collapse: collapse; margin: 0.8rem 0; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; border-bottom: 1px solid #eee;
         vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.met { color: #14682f; font-weight: 600; } .missed { color: #ad1f1f; font-weight: 600; }
.map { width: 100%; max-width: 60rem; } .takes img { height: 160px; display: block; background: #000; }
.takes td { padding-right: 1rem; border: 0; } details { margin: 0.5rem 0; } summary { cursor: pointer; }
"""


Example = tuple[str, list[tuple[str, str]]]
"""A note in its three forms: a title, and pictures as captions with data URIs."""


def render_page(report: Report, map_svg: str, examples: Sequence[Example]) -> str:
    """Writes the page's HTML."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(report.bundle_name)}: evaluation</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(report.bundle_name)}</h1>",
        f'<p class="small">bundle {escape(report.bundle_hash)}<br>held against {escape(report.library)}<br>',
        escape(", ".join(f"{name} {value}" for name, value in report.settings.items())),
        "</p><h2>Bars</h2>",
        _bars(report.judged()),
        '<p class="small">In brackets 95 % intervals, by drawing the notes anew with replacement.</p>',
        *map(_section, report.sections),
        "<h2>The map</h2><p>Large points: the instruments. Small dots: where the timbre encoder puts source "
        f"notes.</p>{map_svg}",
        "<h2>Spectrograms</h2>",
        "<p>Log-mel, to 12 kHz, 60 dB deep; each row drawn to the level of its source.</p>",
        *map(_example, examples),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _bars(figures: Iterable[Figure]) -> str:
    rows = [
        f"<tr><td>{escape(figure.name)}</td><td>{escape(figure.label)}</td>"
        f'<td class="number">{escape(figure.shown)}</td><td class="number">{figure.estimate.n}</td>'
        f"<td>{escape(figure.bar_shown)}</td>{_verdict(figure)}</tr>"
        for figure in figures
    ]
    head = "<tr><th>figure</th><th></th><th>value</th><th>n</th><th>bar</th><th></th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _verdict(figure: Figure) -> str:
    if figure.met is None:
        return "<td>not measured</td>"
    return '<td class="met">met</td>' if figure.met else '<td class="missed">missed</td>'


def _section(section: SectionReport) -> str:
    rows = [
        f"<tr><td>{escape(figure.label)}</td>"
        f'<td class="number">{escape(figure.shown)}</td><td class="number">{figure.estimate.n}</td></tr>'
        for figure in section.figures
    ]
    parts = [
        f"<h2>{escape(section.title)}</h2><p>{escape(section.method)}</p>",
        f"<table><tr><th></th><th>value</th><th>n</th></tr>{''.join(rows)}</table>",
        *(_table(table) for table in section.tables if table.rows),
    ]
    return "".join(parts)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    title = f"<summary>{escape(table.title)}</summary>"
    return f"<details open>{title}<table><tr>{head}</tr>{rows}</table></details>"


def _cell(cell: CellValue) -> str:
    shown = escape(show_cell(cell))
    return f"<td>{shown}</td>" if isinstance(cell, str) or not shown else f'<td class="number">{shown}</td>'


def _example(example: Example) -> str:
    title, pictures = example
    cells = "".join(
        f'<td>{escape(what)}<img alt="{escape(what)}" src="{uri}"></td>' for what, uri in pictures
    )
    return f'<h3>{escape(title)}</h3><table class="takes"><tr>{cells}</tr></table>'


def examples_of(
    notes: EvaluationSet, sections: Sequence[Fidelity], measured: Measurements
) -> Iterator[Example]:
    """Pictures, of each family in the map's order, the first note of every section that has one."""
    for family in dict.fromkeys(notes.families):
        for section in sections:
            found = [number for number, row in enumerate(section.rows) if notes.family(row) == family]
            if found:
                yield _picture_takes(notes, section, found[0], measured)


def _picture_takes(notes: EvaluationSet, section: Fidelity, number: int, measured: Measurements) -> Example:
    takes = {kind: section.takes[kind][number] for kind in JUDGED}
    source = takes[Kind.SOURCE]
    peak = float(np.max(measured.mel(source)))
    pictures = [(str(kind), spectrogram_uri(measured.mel(take), peak)) for kind, take in takes.items()]
    title = (
        f"{notes.name(source.row)}, pitch {source.pitch}, velocity {source.velocity}, "
        f"held {source.seconds:.2f} s ({section.title.lower()})"
    )
    return title, pictures


def spectrogram_uri(mel: NDArray[np.float32], peak_db: float) -> str:
    """Draws the PNG of a spectrogram [frames, bands] in dB as a data URI: time to the right, one pixel a
    frame; low bands at the bottom, the level `peak_db` the brightest."""
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
    """Draws the map as an SVG element: the disc, dots where notes landed [notes, 2], and instruments' points
    [instruments, 2] with their names, which keep off points and each other."""
    colours = family_colours(families)
    left, top, width, height = -ACROSS, -UP, 2 * ACROSS + FAMILIES, 2 * UP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {width:g} {height:g}" '
        f'class="map" role="img" aria-label="the timbre map" font-family="sans-serif" font-size="{TEXT:g}">',
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" fill="white"/>',
        '<circle r="1" fill="none" stroke="#bbb" stroke-width="0.004"/>',
    ]
    for (x, y), family in zip(located, located_families, strict=True):
        parts.append(f'<circle cx="{x:.3f}" cy="{-y:.3f}" r="0.005" fill="{colours[family]}" opacity="0.4"/>')
    places = [(float(x), float(y)) for x, y in points]
    shown = list(names) if len(names) <= MOST_NAMES else []  # more would hide one another
    sizes = [(TEXT * LETTER * len(name), TEXT) for name in shown]
    boxes = place_labels(places[: len(shown)], sizes, MARK, Box(-ACROSS, -UP, ACROSS, UP))
    for (x, y), box in zip(places, boxes, strict=False):
        to_x, to_y = box.nearest_point((x, y))
        parts.append(
            f'<path d="M{x:.3f} {-y:.3f}L{to_x:.3f} {-to_y:.3f}" stroke="#888" stroke-width="0.002"/>'
        )
    for (x, y), family in zip(places, families, strict=True):
        parts.append(
            f'<circle cx="{x:.3f}" cy="{-y:.3f}" r="{MARK:g}" fill="{colours[family]}" stroke="#222" '
            f'stroke-width="0.003"/>'
        )
    for box, name in zip(boxes, shown, strict=True):
        parts.append(
            f'<text x="{box.left:.3f}" y="{-box.bottom - TEXT / 5:.3f}" '
            f'textLength="{box.right - box.left:.3f}" lengthAdjust="spacingAndGlyphs">{escape(name)}</text>'
        )
    for number, (family, colour) in enumerate(colours.items()):
        y = -1.0 + 0.06 * number
        parts.append(
            f'<circle cx="{ACROSS + 0.06:g}" cy="{y:.3f}" r="{MARK:g}" fill="{colour}"/>'
            f'<text x="{ACROSS + 0.09:g}" y="{y + 0.012:.3f}" font-size="0.036">{escape(family)}</text>'
        )
    return "".join([*parts, "</svg>"])


def family_colours(families: Sequence[str]) -> dict[str, str]:
    """Gives each family a colour, in their order."""
    names = list(dict.fromkeys(families))
    colours = {}
    for number, name in enumerate(names):
        lightness = 0.42 if number % 2 else 0.58
        rgb = colorsys.hls_to_rgb(number / len(names), lightness, 0.7)
        colours[name] = "#" + "".join(f"{round(255 * channel):02x}" for channel in rgb)
    return colours
