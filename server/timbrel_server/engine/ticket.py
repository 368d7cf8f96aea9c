"""The engine's side of an accepted request: where its frames go, and in what order they come."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbrel_server.engine.origin import Origin
from timbrel_server.engine.request import NoteRequest

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


class Ticket:
    """An accepted request, and when its key goes up. Each is itself alone: two for equal requests differ."""

    def __init__(
        self,
        request: NoteRequest,
        receive: Callable[[Delivery], None],
        origin: Origin | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """
        Args:
            receive: takes each delivery, on whatever thread the engine's `post` calls it; must not block.
            origin: whose turn it takes while it waits; by default nobody's in particular.
            whole: whether all frames come in one delivery.
        """
        self.whole = whole
        self.request = request
        self.submitted = time.monotonic()
        self.waited_seconds: float | None = None
        """From then until it had a slot; None as long as it waits."""
        self.receive = receive
        self.origin = origin if origin is not None else Origin()
        self._held_frames = request.held_frames

    @property
    def held_frames(self) -> int:
        """Frames for which the key is held, as far as is known by now. Final once the note has ended: then a
        request for so many gives the very same codes."""
        return self._held_frames

    def release(self, n_begun: int) -> None:
        """The key goes up: the first frame that nobody has begun to write is the first released one.

        A note is held for `least_held_frames` at least, and a key that is up already stays up.

        Args:
            n_begun: frames whose gate the decoder has read.
        """
        self._held_frames = min(self._held_frames, max(n_begun, self.request.least_held_frames))
