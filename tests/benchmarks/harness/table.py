"""Figures in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Cell = str | int | float | None


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Prints a table: text to the left, numbers to the right with three digits, `-` for what is missing."""
    rows = [list(row) for row in rows]
    texts = [list(headings), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
    is_left = [all(isinstance(row[column], str) for row in rows) for column in range(len(headings))]
    for row in texts:
        cells = zip(row, widths, is_left, strict=True)
        print(
            "  ".join(
                text.ljust(width) if left else text.rjust(width) for text, width, left in cells
            ).rstrip()
        )


def _text(cell: Cell) -> str:
    match cell:
        case None:
            return "-"
        case float():
            return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
        case _:
            return str(cell)
