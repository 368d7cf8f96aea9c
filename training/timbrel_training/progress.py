"""Tells people of long work: a bar where a person is watching, else a line a minute."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

LINE_SECONDS = 60.0
"""How often a line is written where a bar would fill it: in the log of a service or a batch job."""

LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]\n"


def bar(
    work: Iterable[Any] | None = None,
    *,
    description: str,
    total: int,
    unit: str = "it",
    initial: int = 0,
    shown: bool = True,
) -> tqdm[Any]:
    """Tells on standard error how far some work has come, as it is gone through or `update` is called; of it
    `initial` is done already."""
    is_watched = sys.stderr is not None and sys.stderr.isatty()
    return tqdm(
        work,
        desc=description,
        total=total,
        unit=unit,
        initial=initial,
        disable=not shown,
        dynamic_ncols=True,
        mininterval=1.0 if is_watched else LINE_SECONDS,
        bar_format=None if is_watched else LINE,
    )
