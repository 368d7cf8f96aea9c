"""What every section of the report does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from timbrel_posttraining.evaluate.figure import SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.take import Take

Wanted = tuple[Take, bool]
"""A take, and whether it is heard in full; its log-mel spectrogram is enough otherwise."""


class Section(Protocol):
    """Chooses its takes when it is made, always the same ones of the same material."""

    name: str
    """As figures and the command line have it."""

    def wanted(self) -> Iterable[Wanted]:
        """The takes to make and measure."""
        ...

    def judge(self, heard: Heard) -> SectionReport:
        """The figures, once they are measured."""
        ...
