"""The timbre map as lines of text that fit a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from timbrel.core.timbre import Instrument

CELL_ASPECT = 2.0
"""A terminal's cells are about this much higher than wide."""

MOST_COLUMNS = 132
"""The disc is no wider: a wider terminal would show a disc of more lines than it has."""

COLOURS = (36, 33, 32, 35, 31, 34, 96, 93, 92, 95, 91, 94)
"""SGR codes, in turn by family: readable on dark and light ground; black and white are left out."""


UNICODE_SIGNS = ("●", "·", "┼")
ASCII_SIGNS = ("o", ".", "+")
"""Of a point, the disc's edge and its middle."""


def draw_text(instruments: Sequence[Instrument], width: int, *, colour: bool, unicode: bool) -> str:
    """Draws the unit disc, a mark and a name for each instrument, and below it what had no room, in lines of
    `width` columns at most. `colour`: one for each family, by SGR sequences."""
    families = sorted({each.family for each in instruments})
    paint = {
        family: COLOURS[index % len(COLOURS)] if colour else None for index, family in enumerate(families)
    }
    canvas = _Canvas(width, UNICODE_SIGNS if unicode else ASCII_SIGNS)
    unnamed = canvas.place(instruments, paint)
    return "\n".join([*canvas.lines(), *_legend(families, instruments, unnamed, paint, width)])


class _Canvas:
    """Cells [rows][columns], each a sign and its colour."""

    def __init__(self, width: int, signs: tuple[str, str, str]) -> None:
        self._point, edge, middle = signs
        self._n_columns = min(width, MOST_COLUMNS)
        # The disc leaves room for names beside it where there is room at all.
        disc = self._n_columns if self._n_columns < 60 else self._n_columns - 16
        self._radius_x = (disc - 1) / 2
        self._radius_y = self._radius_x / CELL_ASPECT
        n_rows = 2 * round(self._radius_y) + 1
        self._cells: list[list[tuple[str, int | None]]] = [
            [(" ", None)] * self._n_columns for _ in range(n_rows)
        ]
        self._taken = [[False] * self._n_columns for _ in range(n_rows)]
        for step in range(720):
            angle = math.radians(step / 2)
            row, column = self._cell(math.cos(angle), math.sin(angle))
            self._cells[row][column] = (edge, None)
        row, column = self._cell(0.0, 0.0)
        self._cells[row][column] = (middle, None)

    def place(self, instruments: Sequence[Instrument], paint: dict[str, int | None]) -> list[Instrument]:
        """Marks all, names as many as there is room for; returns the others."""
        spots = {each: self._cell(*each.timbre) for each in instruments}
        for each, (row, column) in spots.items():
            self._write(row, column, self._point, paint[each.family])
        # From the top, as one reads.
        return [
            each
            for each, spot in sorted(spots.items(), key=lambda pair: pair[1])
            if not self._name(each.name, spot, paint[each.family])
        ]

    def lines(self) -> Iterator[str]:
        """Without blanks at the end."""
        for row in self._cells:
            last = max((index for index, (sign, _) in enumerate(row) if sign != " "), default=-1)
            yield "".join(_coloured(sign, code) for sign, code in row[: last + 1])

    def _cell(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of a point; what lies a hair outside of the disc stays on the canvas."""
        centre_row, centre_column = (len(self._cells) - 1) / 2, (self._n_columns - 1) / 2
        row = round(centre_row - y * self._radius_y)
        column = round(centre_column + x * self._radius_x)
        return min(max(row, 0), len(self._cells) - 1), min(max(column, 0), self._n_columns - 1)

    def _name(self, name: str, spot: tuple[int, int], code: int | None) -> bool:
        """Writes a name to the right of its mark, else to the left; else says that there is no room."""
        row, column = spot
        for start in (column + 2, column - 1 - len(name)):
            # One free cell on either side keeps names apart.
            if start >= 0 and start + len(name) <= self._n_columns:
                around = range(max(start - 1, 0), min(start + len(name) + 1, self._n_columns))
                if not any(self._taken[row][cell] and cell != column for cell in around):
                    # The disc's edge makes room beside a name.
                    for cell in {start - 1, start + len(name)} & set(around) - {column}:
                        self._cells[row][cell] = (" ", None)
                    self._write(row, start, name, code)
                    return True
        return False

    def _write(self, row: int, column: int, text: str, code: int | None) -> None:
        for index, sign in enumerate(text, column):
            self._cells[row][index] = (sign, code)
            self._taken[row][index] = True


def _legend(
    families: Sequence[str],
    instruments: Sequence[Instrument],
    unnamed: Sequence[Instrument],
    paint: dict[str, int | None],
    width: int,
) -> Iterator[str]:
    """The families' colours, and where the instruments without a name on the map lie."""
    if any(code is not None for code in paint.values()):
        yield ""
        yield from _flowed([(family, paint[family]) for family in families], width)
    if unnamed:
        yield ""
        places = [f"{each.name} ({each.timbre[0]:+.2f}, {each.timbre[1]:+.2f})" for each in unnamed]
        colours = [paint[each.family] for each in unnamed]
        yield from _flowed(list(zip(places, colours, strict=True)), width)
    if not instruments:
        yield "the map names no instruments"


def _flowed(items: Sequence[tuple[str, int | None]], width: int) -> Iterator[str]:
    """Items one after another, as many as fit on a line; one that is too long by itself is cut."""
    line, length = "", 0
    for text, code in items:
        text = text[:width]
        if length and length + 2 + len(text) > width:
            yield line
            line, length = "", 0
        if length:
            line, length = line + "  ", length + 2
        line, length = line + _coloured(text, code), length + len(text)
    if length:
        yield line


def _coloured(text: str, code: int | None) -> str:
    return text if code is None else f"\x1b[{code}m{text}\x1b[0m"
