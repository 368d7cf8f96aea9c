"""Tells people of work: by progress bars on standard error where a person is watching, and by counts."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

from tqdm import tqdm


class NoBar(AbstractContextManager["NoBar"]):
    """Stands for a bar that is not shown. tqdm's own would take the lock that all of a process's bars share:
    where whoever held it was interrupted, the event loop of all clients would wait for ever."""

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """More is done."""

    def close(self) -> None:
        """All is done."""


def bar(
    description: str, total: int | None, unit: str, *, shown: bool = True, initial: int = 0
) -> tqdm[Any] | NoBar:
    """A bar to `update(n)`, as a context manager, where it is `shown` and standard error is a terminal or a
    notebook's.

    The total is None where it is not known; the unit "B" is scaled to kB and MB; `initial` units are done
    already.
    """
    if not (shown and _is_watched()):
        return NoBar()
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=unit == "B",
        initial=initial,
        leave=False,
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
