"""The base class of the report's sections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Take
from timbrel_posttraining.evaluate.report import SectionReport
from timbrel_posttraining.evaluate.takes import Measurements


class Section(ABC):
    """Asks one question about a bundle, which its figures answer.

    A section chooses its takes when it is made, always the same ones of the same notes.
    """

    name: ClassVar[str]
    """The name on the command line, with which its figures' names begin."""
    in_full: ClassVar[bool] = True
    """True where all is measured of its takes; otherwise their log-mel spectrograms are enough."""

    requested: Sequence[Take] = ()
    """The takes to make and measure."""
    compared: Sequence[tuple[Take, Take]] = ()
    """Pairs (source, take) to compare, which `requested` need not list as well."""

    @abstractmethod
    def __init__(self, notes: EvaluationSet) -> None: ...

    @abstractmethod
    def judge(self, measured: Measurements) -> SectionReport:
        """Works the figures out, once the takes are measured."""
