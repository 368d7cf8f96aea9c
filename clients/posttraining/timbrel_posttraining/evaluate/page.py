"""report.html: the report for reading, in one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from timbrel_posttraining.evaluate.figure import Cell, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.report import Report

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


@dataclass(frozen=True)
class Example:
    """One note in its three forms, as pictures."""

    title: str
    pictures: tuple[tuple[str, str], ...]
    """What it is, and a data URI."""


def render_page(report: Report, map_svg: str, examples: Sequence[Example]) -> str:
    """The page's HTML."""
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


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return "<td></td>"
        case str():
            return f"<td>{escape(cell)}</td>"
        case int():
            return f'<td class="number">{cell}</td>'
    return f'<td class="number">{cell:.3f}</td>' if abs(cell) < 1 else f'<td class="number">{cell:.1f}</td>'


def _example(example: Example) -> str:
    pictures = "".join(
        f'<td>{escape(what)}<img alt="{escape(what)}" src="{uri}"></td>' for what, uri in example.pictures
    )
    return f'<h3>{escape(example.title)}</h3><table class="takes"><tr>{pictures}</tr></table>'
