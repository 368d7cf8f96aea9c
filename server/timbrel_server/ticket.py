"""The engine's side of an accepted request: where its frames go, and in what order they come."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbrel_server.request import NoteRequest

Frame = tuple[int, ...]
"""One code per codebook."""


class Finish(enum.Enum):
    """Why a note ended."""

    EOS = enum.auto()
    """The model ended it."""

    CAP = enum.auto()
    """It reached the bundle's cap and was cut there."""


@dataclass(frozen=True)
class Delivery:
    """The next frames of a note. The last delivery of a note has `finish` or `error` set."""

    frames: Sequence[Frame] = ()
    finish: Finish | None = None
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class Ticket:
    """An accepted request. Each is itself alone: two tickets for equal requests differ."""

    request: NoteRequest
    receive: Callable[[Delivery], None]
    """Takes each delivery, on whatever thread the engine's `post` calls it; must not block."""
