"""The figures on how well takes are in tune."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.take import Take

JUMP_CENTS = 50.0
"""Where the fundamental steps this far from one frame to the next, the note has a moment at a wrong pitch."""

SHARES = (
    ("in_tune", "in tune within 50 cents by either tracker"),
    ("swift_in_tune", "in tune within 50 cents by swift-f0 alone (pGESAM's own demo notes: 75 %)"),
    ("within_15", "in tune within 15 cents"),
    ("octave_error", "an octave or more off"),
    ("truncated", "cut at the bundle's cap"),
)


def tuning_figures(
    heard: Heard, takes: Sequence[Take], name: Callable[[str], str], who: str
) -> Iterator[Figure]:
    """Shares, and the spread of the fundamental within a note.

    Args:
        name: makes the figure's full name of its own.
        who: whose takes they are, for the label.
    """
    for field, label in SHARES:
        estimate = statistics.share(heard.column(takes, field))
        yield Figure(name(field), f"{label}: {who}", estimate, "%")
    spread = statistics.median(heard.column(takes, "spread_cents"))
    yield Figure(name("spread"), f"spread of the fundamental within a note: {who}", spread, "cents")
    jumped = statistics.share(heard.column(takes, "jump_cents") > JUMP_CENTS)
    yield Figure(name("jumps"), f"fundamental jumps by more than {JUMP_CENTS:g} cents: {who}", jumped, "%")
