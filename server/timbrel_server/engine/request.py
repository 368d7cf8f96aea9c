"""Requests for notes: in the engine's own units, their handles, and what is delivered of them."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from timbrel_bundle.request_fields import DEFAULT_SAMPLING, Cents, SamplingSettings, TimbrePath

Frame = tuple[int, ...]
"""One code per codebook."""

FOREVER = 1 << 60
"""Frames: until the key goes up."""


@dataclass(frozen=True)
class NoteRequest:
    """One note to write. Everything in it is within the bundle's ranges."""

    timbre: tuple[float, float]
    """Point (x, y) in the unit disc."""

    pitch: int
    """MIDI note number."""

    velocity: int
    """MIDI velocity, 1..127."""

    held_frames: int
    """Frames with the key down that the model writes, at least 1; where it is released while the note sounds,
    at most."""

    seed: int
    """0..2^64-1."""

    sampling: SamplingSettings = DEFAULT_SAMPLING
    """Every field of it is set."""

    least_held_frames: int = 1
    """A key that is released earlier goes up after so many frames. At least 1."""

    frames_ahead: int | None = None
    """Frames that may be written ahead of real time while the key is held, at least 1: what has been written
    can no longer be released. None writes as fast as it goes."""

    lead_frames: int = 0
    """Frames at the note's start that hold no sound."""

    held_on_frames: int = 0
    """Frames for which the key is held on behind these, without the model. A note that is played live stands
    still there until it is released; any other goes on with its release."""

    cents: Cents = 0.0
    """How its sound is bent, where it is decoded here. Its codes have nothing to do with it."""

    path: TimbrePath = ()
    """Where its timbre goes, behind the engine: each point's header is a note of its own to it."""

    is_header: bool = False
    """Whether it is for its first frames alone, which another note takes on, and is then given up."""

    @property
    def is_live(self) -> bool:
        """Whether it is played live, and keeps its slot for as long as its key is held."""
        return self.frames_ahead is not None


@dataclass(frozen=True)
class ClientKey:
    """The key by which waiting requests take turns."""

    caller: str = ""
    """The name of whoever asks: callers take turns."""

    call: Hashable = field(default_factory=object)
    """The call it came with: a caller's calls take turns. By default each request is a call of its own."""

    patient: bool = False
    """Whether it would rather wait than be refused: who asks bounds how many do, as the flow control of
    streams does."""


class Finish(enum.Enum):
    """The reason for which a note ended."""

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


class RequestHandle:
    """An accepted request, and when its key goes up. Each is itself alone: two for equal requests differ."""

    def __init__(
        self,
        request: NoteRequest,
        receive: Callable[[Delivery], None],
        client: ClientKey | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """
        Args:
            receive: takes each delivery, on whatever thread the engine's `post` calls it; must not block.
            client: says whose turn it takes while it waits; by default nobody's in particular.
            whole: whether all frames come in one delivery.
        """
        self.request = request
        self.receive = receive
        self.client = client if client is not None else ClientKey()
        self.whole = whole
        self.submitted = time.monotonic()
        self.waited_seconds: float | None = None
        """From then until it had a slot; None as long as it waits."""
        self.held_frames = request.held_frames
        """Frames with the key down that the model writes, as far as is known by now. Final once the note has
        ended: then a request for so many gives the very same codes."""
        self.is_released = False
        """Whether the key is up."""

    def release(self, n_begun: int) -> None:
        """The key goes up: the first frame that nobody has begun to write is the first released one.

        A note is held for `least_held_frames` at least, and a key that is up already stays up.

        Args:
            n_begun: frames whose gate the decoder has read.
        """
        self.held_frames = min(self.held_frames, max(n_begun, self.request.least_held_frames))
        self.is_released = True


class EngineObserver:
    """Is told of what happens, from the engine's threads and from the event loop; must not block.

    This one ignores it all.
    """

    def accepted(self, handle: RequestHandle) -> None:
        """A request is accepted."""

    def delivered(self, handle: RequestHandle, delivery: Delivery) -> None:
        """The reader of a request has got a delivery."""

    def cancelled(self, handle: RequestHandle) -> None:
        """A request is wanted no more; it may have ended."""

    def refused(self) -> None:
        """A request found no place, or no time."""

    def admitted(self, handle: RequestHandle) -> None:
        """A request got its slot."""

    def stepped(self, seconds: float, n_notes: int) -> None:
        """So many notes moved on by a step."""
