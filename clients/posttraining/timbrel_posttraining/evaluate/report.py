"""The report's contents: sections of figures with intervals and bars, and tables; as JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from timbrel_posttraining.evaluate.estimates import Estimate


class Sense(StrEnum):
    """The side of a bar's limit that is good."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Bar:
    """A limit that a bundle has to reach to ship, itself allowed."""

    sense: Sense
    limit: float

    def met_by(self, value: float) -> bool:
        """Tells whether this value reaches the limit."""
        return value >= self.limit if self.sense is Sense.AT_LEAST else value <= self.limit


BARS: Mapping[str, Bar] = {
    "two_sample.reconstruction": Bar(Sense.AT_MOST, 0.72),
    "two_sample.reconstruction.worst_kind": Bar(Sense.AT_MOST, 0.80),
    "two_sample.reconstruction.worst_instrument": Bar(Sense.AT_MOST, 0.92),
    "two_sample.generated": Bar(Sense.AT_MOST, 0.78),
    "two_sample.generated_from_reconstruction": Bar(Sense.AT_MOST, 0.62),
    "truth.log_mel.reconstruction": Bar(Sense.AT_MOST, 2.6),  # dB
    "truth.moved.reconstruction": Bar(Sense.AT_MOST, 0.14),  # dB
    "truth.cents.reconstruction": Bar(Sense.AT_MOST, 5.0),
    "truth.partials.reconstruction": Bar(Sense.AT_MOST, 2.0),  # dB
    "truth.valleys.reconstruction": Bar(Sense.AT_MOST, 3.0),  # dB
    "truth.formants.reconstruction": Bar(Sense.AT_MOST, 1.5),  # dB
    "truth.attack.reconstruction": Bar(Sense.AT_MOST, 4.0),  # ms
    "truth.attack.generated": Bar(Sense.AT_MOST, 10.0),  # ms
    "velocity.brightness_error.reconstruction": Bar(Sense.AT_MOST, 0.15),
    "velocity.brightness_error.generated": Bar(Sense.AT_MOST, 0.15),
    "velocity.level_error": Bar(Sense.AT_MOST, 1.3),  # dB
    "identity.ratio": Bar(Sense.AT_LEAST, 0.85),
    "release.error_of_allowed": Bar(Sense.AT_MOST, 1.0),  # of max(10 %, 50 ms)
    "locate.generated_nearest": Bar(Sense.AT_LEAST, 0.75),
    "locate.held_out_among_5": Bar(Sense.AT_LEAST, 0.60),
    "locate.apart": Bar(Sense.AT_LEAST, 0.90),
    "bundle.megabytes": Bar(Sense.AT_MOST, 60.0),
}
"""The bars by the figure's name. Shares are of 1; units are those of the figures. That notes are in tune has
none: codecs may have it by construction, and the tests of the bundle that ships hold it."""


CellValue = str | int | float | None
"""The value of a table's cell; None where there is nothing to tell."""


@dataclass(frozen=True)
class Figure:
    """One number with its 95 % interval."""

    name: str
    """Flat and dotted: "trained.in_tune.generated"."""
    label: str
    """The words for people."""
    estimate: Estimate
    unit: str = ""
    """One of "%" (the value is a share of 1), "dB", "ms", "s", "cents", "MB", or nothing."""

    @property
    def has_bar(self) -> bool:
        """True where a bar is set for it."""
        return self.name in BARS

    @property
    def met(self) -> bool | None:
        """True where its bar is reached; None where there is no bar, or nothing was measured."""
        bar = BARS.get(self.name)
        return None if bar is None or math.isnan(self.estimate.value) else bar.met_by(self.estimate.value)

    @property
    def shown(self) -> str:
        """Value and interval for people: "97.3 % (96.6 to 98.0)"."""
        value = show_number(self.estimate.value, self.unit)
        if not math.isfinite(self.estimate.low + self.estimate.high):
            return value
        ends = (self.estimate.low, self.estimate.high)
        low, high = (show_number(end, self.unit).removesuffix(self.unit).strip() for end in ends)
        return f"{value} ({low} to {high})"

    @property
    def bar_shown(self) -> str:
        """The bar for people: "at least 90.0 %"; nothing where there is none."""
        bar = BARS.get(self.name)
        return "" if bar is None else f"{bar.sense} {show_number(bar.limit, self.unit)}"

    @property
    def line(self) -> str:
        """The figure for a terminal: name, value and interval; where there is a bar, that and the verdict."""
        verdicts = {True: "met", False: "MISSED", None: "not measured"}
        verdict = verdicts[self.met] if self.has_bar else ""
        return f"{self.name:32} {self.shown:36} {self.bar_shown:18} {verdict}".rstrip()

    def to_json(self) -> dict[str, object]:
        """The figure as JSON values; null where nothing could be measured."""
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
    """A breakdown in rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[CellValue, ...], ...]

    def to_json(self) -> dict[str, object]:
        """The table as JSON values."""
        rows = [[json_number(cell) if isinstance(cell, float) else cell for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class SectionReport:
    """The findings of one section."""

    name: str
    title: str
    method: str
    """The method of measurement, in a sentence or two."""
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields the section for a terminal: a line per figure, and one per row of its tables."""
        yield from (figure.line for figure in self.figures)
        for table in self.tables:
            yield f"{table.title} ({', '.join(table.columns)}):"
            yield from (f"  {', '.join(show_cell(cell) or '-' for cell in row)}" for row in table.rows)

    def to_json(self) -> dict[str, object]:
        """The section as JSON values; its figures are named, and stand in the report's flat list."""
        return {
            "title": self.title,
            "method": self.method,
            "figures": [figure.name for figure in self.figures],
            "tables": [table.to_json() for table in self.tables],
        }


@dataclass(frozen=True)
class Report:
    """The findings of an evaluation of one bundle."""

    bundle_name: str
    bundle_hash: str
    library: str
    """Sources of the notes that it was held against."""
    settings: Mapping[str, object]
    """Everything else that the figures depend on."""
    sections: tuple[SectionReport, ...]

    def figures(self) -> Iterator[Figure]:
        """Yields all figures, section by section."""
        for section in self.sections:
            yield from section.figures

    def judged(self) -> Iterator[Figure]:
        """Yields the figures that have a bar."""
        return (figure for figure in self.figures() if figure.has_bar)

    def to_json(self) -> str:
        """Writes the text of report.json."""
        values = {
            "bundle": self.bundle_name,
            "bundle_hash": self.bundle_hash,
            "library": self.library,
            "settings": dict(self.settings),
            "figures": {figure.name: figure.to_json() for figure in self.figures()},
            "sections": {section.name: section.to_json() for section in self.sections},
        }
        return json.dumps(values, indent=1, allow_nan=False) + "\n"


def show_number(value: float, unit: str) -> str:
    """Writes a value as a person reads it: "97.3 %", "2.41 dB"."""
    if not math.isfinite(value):
        return "not measured"
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if not unit else f"{value:.{1 if abs(value) >= 100 else 2}f} {unit}"


def show_cell(cell: CellValue) -> str:
    """Writes a table's cell as a person reads it: nothing where nothing could be measured."""
    if cell is None or cell != cell:  # NaN
        return ""
    return (f"{cell:.3f}" if abs(cell) < 1 else f"{cell:.1f}") if isinstance(cell, float) else str(cell)


def json_number(value: float) -> float | None:
    """Makes null of NaN and infinity, which JSON does not know."""
    return float(value) if math.isfinite(value) else None
