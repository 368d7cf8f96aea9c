"""Where a request comes from, as far as the queue cares."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Origin:
    """Whose turn a request takes while it waits."""

    caller: str = ""
    """Who asks: callers take turns."""

    call: Hashable = field(default_factory=object)
    """The call it came with: a caller's calls take turns. By default each request is a call of its own."""

    patient: bool = False
    """Whether it would rather wait than be refused: what holds it back is the flow control of its stream."""
