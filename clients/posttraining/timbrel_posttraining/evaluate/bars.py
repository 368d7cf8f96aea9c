"""The bars: what a bundle has to reach to ship. Shares are of 1; units are those of the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Sense(StrEnum):
    """Which side of the limit is good."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Bar:
    """A limit, itself allowed."""

    sense: Sense
    limit: float

    def met_by(self, value: float) -> bool:
        """Whether this value reaches it."""
        return value >= self.limit if self.sense is Sense.AT_LEAST else value <= self.limit


def _at_least(limit: float) -> Bar:
    return Bar(Sense.AT_LEAST, limit)


def _at_most(limit: float) -> Bar:
    return Bar(Sense.AT_MOST, limit)


BARS: Mapping[str, Bar] = {
    "trained.in_tune.lost_by_codec": _at_most(0.01),
    "trained.in_tune.lost_by_model": _at_most(0.02),
    "held_out.in_tune.lost": _at_most(0.03),
    "between.in_tune": _at_least(0.90),
    "trained.log_mel.reconstruction": _at_most(2.5),  # dB
    "trained.log_mel.excess": _at_most(0.0),  # dB above 1.25 times the reconstruction's distance plus 1 dB
    "consistency.ratio": _at_least(0.95),
    "identity.ratio": _at_least(0.85),
    "smoothness.largest_step": _at_most(0.40),
    "velocity.level_error": _at_most(3.0),  # dB
    "release.error_of_allowed": _at_most(1.0),  # of max(10 %, 50 ms)
    "locate.generated_nearest": _at_least(0.75),
    "locate.held_out_among_5": _at_least(0.60),
    "locate.apart": _at_least(0.90),
    "bundle.megabytes": _at_most(60.0),
}
"""By the figure's name."""
