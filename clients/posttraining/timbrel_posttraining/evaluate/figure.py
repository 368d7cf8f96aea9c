"""What a section reports: figures with their intervals and bars, and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from timbrel_posttraining.evaluate.bars import BARS
from timbrel_posttraining.evaluate.measure.bootstrap import Estimate

Cell = str | int | float | None
"""Of a table; None where there is nothing to tell."""


@dataclass(frozen=True)
class Figure:
    """One number with its 95 % interval."""

    name: str
    """Flat and dotted: "trained.in_tune.generated"."""
    label: str
    """For people."""
    estimate: Estimate
    unit: str = ""
    """One of "%" (the value is a share of 1), "dB", "ms", "s", "cents", "MB", or nothing."""

    @property
    def has_bar(self) -> bool:
        """Whether a bar is set for it."""
        return self.name in BARS

    @property
    def met(self) -> bool | None:
        """Whether its bar is reached; None where there is no bar, or nothing was measured."""
        bar = BARS.get(self.name)
        return None if bar is None or math.isnan(self.estimate.value) else bar.met_by(self.estimate.value)

    @property
    def shown(self) -> str:
        """Value and interval for people: "97.3 % (96.6 to 98.0)"."""
        value = show_number(self.estimate.value, self.unit)
        if not math.isfinite(self.estimate.low + self.estimate.high):
            return value
        low, high = (show_number(end, self.unit).removesuffix(self.unit).strip() for end in self._ends)
        return f"{value} ({low} to {high})"

    @property
    def bar_shown(self) -> str:
        """The bar for people: "at least 90.0 %"; nothing where there is none."""
        bar = BARS.get(self.name)
        return "" if bar is None else f"{bar.sense} {show_number(bar.limit, self.unit)}"

    @property
    def _ends(self) -> tuple[float, float]:
        return self.estimate.low, self.estimate.high

    def to_json(self) -> dict[str, object]:
        """JSON values; what could not be measured is null."""
        bar = BARS.get(self.name)
        return {
            "value": json_number(self.estimate.value),
            "low": json_number(self.estimate.low),
            "high": json_number(self.estimate.high),
            "n": self.estimate.n,
            "unit": self.unit,
            "label": self.label,
            "bar": None if bar is None else bar.limit,
            "bar_is": None if bar is None else str(bar.sense),
            "met": self.met,
        }


@dataclass(frozen=True)
class Table:
    """Rows of a section's breakdown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_json(self) -> dict[str, object]:
        """JSON values."""
        rows = [[json_number(cell) if isinstance(cell, float) else cell for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class SectionReport:
    """What one section found."""

    name: str
    title: str
    method: str
    """How it was measured, in a sentence or two."""
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = field(default=())

    def to_json(self) -> dict[str, object]:
        """JSON values; the figures are named, and stand in the report's flat list."""
        return {
            "title": self.title,
            "method": self.method,
            "figures": [figure.name for figure in self.figures],
            "tables": [table.to_json() for table in self.tables],
        }


def show_number(value: float, unit: str) -> str:
    """A value as a person reads it: "97.3 %", "2.41 dB"."""
    if not math.isfinite(value):
        return "not measured"
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if not unit else f"{value:.{1 if abs(value) >= 100 else 2}f} {unit}"


def json_number(value: float) -> float | None:
    """JSON knows neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None
