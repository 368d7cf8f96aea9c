"""The report: everything that was found, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from timbrel_posttraining.evaluate.figure import Figure, SectionReport


@dataclass(frozen=True)
class Report:
    """What an evaluation found of one bundle."""

    bundle_name: str
    bundle_hash: str
    library: str
    """Sources of the notes that it was held against."""
    settings: Mapping[str, object]
    """What the figures depend on besides the bundle."""
    sections: tuple[SectionReport, ...]

    def figures(self) -> Iterator[Figure]:
        """All figures, section by section."""
        for section in self.sections:
            yield from section.figures

    def judged(self) -> Iterator[Figure]:
        """Those that have a bar."""
        return (figure for figure in self.figures() if figure.has_bar)

    def to_json(self) -> str:
        """The text of report.json."""
        values = {
            "bundle": self.bundle_name,
            "bundle_hash": self.bundle_hash,
            "library": self.library,
            "settings": dict(self.settings),
            "figures": {figure.name: figure.to_json() for figure in self.figures()},
            "sections": {section.name: section.to_json() for section in self.sections},
        }
        return json.dumps(values, indent=1, allow_nan=False) + "\n"
