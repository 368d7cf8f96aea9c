"""Tells people of work: by progress bars on standard error where a person is watching, and by counts."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


def bar(description: str, total: int | None, unit: str, *, shown: bool = True, initial: int = 0) -> tqdm[Any]:
    """A bar to `update(n)`, as a context manager.

    Args:
        total: how many units there are in all; None where it is not known.
        unit: "B" for bytes, which are scaled to kB and MB, or for example "note".
        shown: False for none at all; otherwise it shows where standard error is a terminal.
        initial: units done already.
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
