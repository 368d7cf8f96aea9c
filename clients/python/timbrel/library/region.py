"""One sample as a sampler's instrument file describes it, and the instrument that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A sample and what it is for."""

    file: str
    """Path within the library, with forward slashes."""

    pitch: int
    keys: tuple[int, int]
    velocities: tuple[int, int]
    round_robin: int
    """From 1."""

    tune: int
    """Cents to add."""

    loop: tuple[int, int] | None
    """First and last sample of the loop, both played."""

    @property
    def loop_mode(self) -> str:
        return "no_loop" if self.loop is None else "loop_continuous"


@dataclass(frozen=True)
class SamplerInstrument:
    """All that an instrument file says."""

    name: str
    slug: str
    comment: str
    """One line."""

    regions: Sequence[Region]
    round_robins: int
    velocity_tracking: int
    """How much softer keys play softer, in percent: 0 where the layers were recorded so, else 100."""

    release_seconds: float
    """Fade after a key is let go."""


def velocity_tracking(n_layers: int) -> int:
    """0 where softness was rendered, so that it is not applied twice; 100 where there is one layer only."""
    return 0 if n_layers > 1 else 100
