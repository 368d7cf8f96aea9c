"""Tells people of work: by progress bars on standard error where a person is watching, and by counts."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


def bar(description: str, total: int | None, unit: str, *, shown: bool = True, initial: int = 0) -> tqdm[Any]:
    """A bar to `update(n)`, as a context manager, where standard error is a terminal and it is `shown`.

    The total is None where it is not known; the unit "B" is scaled to kB and MB; `initial` units are done
    already.
    """
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=unit == "B",
        initial=initial,
        leave=False,
        disable=None if shown else True,
    )


def counted(number: int, noun: str) -> str:
    """As in "1 instrument" and "2 instruments"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
