"""Tells people of long work: a bar where a person is watching, else a line a minute; and counts."""

from __future__ import annotations

import math
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from tqdm import tqdm

LINE_SECONDS = 60.0
"""How often a line is written where a bar would fill it: in the log of a service or a batch job."""

LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
LINE_WITHOUT_TOTAL = "{desc}: {n_fmt} [{elapsed}, {rate_fmt}]"


class Lines(AbstractContextManager["Lines"]):
    """Says now and then on standard error how far some work has come. As `tqdm`, as far as it is used here.

    It stands for a bar that is not shown, too, and never takes the lock that all of a process's bars share:
    where whoever holds it was interrupted, the event loop of all clients would wait for ever.
    """

    def __init__(self, description: str, total: int | None, unit: str, initial: int, every: float) -> None:
        """`every` is the seconds between two lines, infinite for none."""
        self._description = description
        self._total = total
        self._unit = unit
        self._initial = self._done = initial
        self._every = every
        self._start = self._said = time.monotonic()

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """More is done."""
        self._done += n
        now = time.monotonic()
        if now - self._said >= self._every and sys.stderr is not None:
            self._said = now
            line = tqdm.format_meter(
                self._done,
                self._total,  # type: ignore[arg-type]  # the stubs know no unknown total
                now - self._start,
                prefix=self._description,
                unit=self._unit,
                unit_scale=self._unit == "B",
                initial=self._initial,
                bar_format=LINE_WITHOUT_TOTAL if self._total is None else LINE,
            )
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """All is done."""


def bar(
    description: str, total: int | None, unit: str, *, shown: bool = True, initial: int = 0
) -> tqdm[Any] | Lines:
    """A bar to `update(n)`, as a context manager, where it is `shown` and standard error is a terminal or a
    notebook's; elsewhere a line a minute there.

    The total is None where it is not known; the unit "B" is scaled to kB and MB; `initial` units are done
    already.
    """
    if not (shown and _is_watched()):
        return Lines(description, total, unit, initial, LINE_SECONDS if shown else math.inf)
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=unit == "B",
        initial=initial,
        leave=False,
        dynamic_ncols=True,
    )


def _is_watched() -> bool:
    """Whether a person sees standard error as it comes."""
    # What programs put in its place to gather what is said may know neither terminals nor bars.
    is_terminal = getattr(sys.stderr, "isatty", None)
    is_notebook = type(sys.stderr).__module__.startswith("ipykernel.")  # which shows bars, and is no terminal
    return is_notebook or (is_terminal is not None and bool(is_terminal()))


def counted(number: int, noun: str) -> str:
    """As in "1 instrument" and "2 instruments"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
