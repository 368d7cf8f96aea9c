"""Notes of the library that can stand beside another one: alike in what is not being compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.material import Material

VELOCITY_SCALE = 8.0
"""A velocity this far off counts as much as ..."""
HOLD_SCALE = 0.1
"""... a hold that is longer or shorter by this share (its natural logarithm)."""


def unlikeness(
    material: Material, row: int, rows: NDArray[np.int64], hold_scale: float = HOLD_SCALE
) -> NDArray[np.float64]:
    """How differently from note `row` the notes `rows` are played, [rows]: 1 for a scale of either.

    A larger `hold_scale` lets the velocity decide, for measures that do not mind the hold.
    """
    library = material.library
    velocity = np.abs(library.velocity[rows].astype(float) - float(library.velocity[row]))
    hold = np.abs(np.log(library.held_seconds[rows] / library.held_seconds[row]))
    return np.asarray(velocity / VELOCITY_SCALE + hold / hold_scale, dtype=np.float64)


def most_alike(
    material: Material, row: int, rows: NDArray[np.int64], hold_scale: float = HOLD_SCALE
) -> int | None:
    """The one of `rows` that is played most like note `row`; None where there is none."""
    rows = rows[rows != row]
    return int(rows[np.argmin(unlikeness(material, row, rows, hold_scale))]) if len(rows) else None
