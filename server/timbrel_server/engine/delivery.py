"""The delivery of frames: gathered into chunks, sent with those of other notes, handed to their readers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence

from timbrel_server.engine.request import Delivery, EngineObserver, RequestHandle

LARGEST_CHUNK_FRAMES = 32
"""Beyond this larger replies save next to nothing."""

NO_LIMIT = 1 << 30

GROWTH = 3

LONGEST_WAIT_SECONDS = 0.15
"""The age of a frame at which it is sent: a listener who began 0.3 s behind a note that is written as fast
as it is played is never kept waiting, while a note that is written faster goes in few large replies."""

LONGEST_WAIT_AFTER_QUEUING_SECONDS = 0.25
"""The same where the note itself came late: its listener begins 0.3 s behind the first chunk, not behind the
asking. Where notes queue, replies are what the machine has no time for."""

NOTICEABLE_WAIT_SECONDS = 0.1
"""A note that waited longer for its slot came late."""

LONGEST_HOLD_SECONDS = 0.01
"""So long at most waits a delivery that nobody is in a hurry for: several steps of many notes, and little
beside what frames wait for a chunk to fill."""

Deliveries = Sequence[tuple[RequestHandle, Delivery]]

Post = Callable[[Deliveries], None]
"""Hands out deliveries, in order, without blocking; called on an engine's thread, or on that of `fail`."""


def post_to(loop: asyncio.AbstractEventLoop, observer: EngineObserver) -> Post:
    """Makes a `Post` that hands out on the loop's thread: one hop for all that a step has to deliver."""

    def hand_out(deliveries: Deliveries) -> None:
        for handle, delivery in deliveries:
            handle.receive(delivery)
            observer.delivered(handle, delivery)

    def post(deliveries: Deliveries) -> None:
        # The loop is closed where a server ends in a hurry: nobody listens any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hand_out, deliveries)

    return post


class DeliveryCoalescer:
    """Gathers what steps have written: chunks that can wait go out with others, since to wake up who takes
    them costs more than to take them.

    No locks: whoever owns it guards it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            clock: seconds since some moment in the past, never falling.
        """
        self._clock = clock
        self._held: dict[RequestHandle, Delivery] = {}
        self._since = 0.0  # when the first of them came
        self._is_urgent = False

    @property
    def n_held(self) -> int:
        """Notes of which something waits."""
        return len(self._held)

    def put(self, handle: RequestHandle, delivery: Delivery, *, urgent: bool) -> None:
        """Takes a delivery; one more of the same note becomes one with what waits of it.

        Args:
            urgent: whether it is to go out now, and all that waits with it.
        """
        if not self._held:
            self._since = self._clock()
        before = self._held.get(handle)
        if before is not None:
            delivery = Delivery([*before.frames, *delivery.frames], delivery.finish)
        self._held[handle] = delivery
        self._is_urgent |= urgent

    def hasten(self) -> None:
        """Has all that waits go out now."""
        self._is_urgent = True

    def take(self, *, again_in_seconds: float = math.inf) -> Deliveries:
        """Returns the deliveries that are to go out now: all or nothing.

        Args:
            again_in_seconds: when this will be asked again; what could wait too long until then goes out now.
        """
        if not self._held:
            return ()
        held_then = self._clock() - self._since + again_in_seconds
        if not self._is_urgent and held_then < LONGEST_HOLD_SECONDS:
            return ()
        taken = list(self._held.items())
        self._held.clear()
        self._is_urgent = False
        return taken

    def drop(self, handle: RequestHandle) -> None:
        """Forgets what waits of a note."""
        self._held.pop(handle, None)


class Chunker:
    """Tells which of a note's frames go out together: the first that is heard alone, so that sound can begin;
    then each chunk is three times as large as the last, since a reply costs the same whatever is in it."""

    def __init__(
        self, *, lead_frames: int = 0, whole: bool = False, is_live: bool = False, came_late: bool = False
    ) -> None:
        """
        Args:
            lead_frames: frames without sound, which go out with the first that has some.
            whole: nothing goes out before the end.
            is_live: each frame goes out by itself: the next is a frame of real time away, and nothing is
                gained by waiting for more.
            came_late: a listener who is not live is in no hurry any more. The first frame goes out alone,
                then what there is once it is as old as it may get.
        """
        self.n_sent = 0
        """Frames that have gone out."""
        is_late = came_late and not is_live
        self._size = NO_LIMIT if whole else 1 + lead_frames
        self._lead_frames = lead_frames
        wait_seconds = LONGEST_WAIT_AFTER_QUEUING_SECONDS if is_late else LONGEST_WAIT_SECONDS
        self._longest_wait_seconds = math.inf if whole else wait_seconds
        self._growth = NO_LIMIT if is_late else GROWTH
        self._largest = 1 if is_live else NO_LIMIT if is_late else LARGEST_CHUNK_FRAMES
        self._due: float | None = None  # when what is pending is to go out, however little it is
        self._is_live = is_live
        self.is_urgent = not whole
        """Whether the next chunk is to go out at once: its listener hears nothing yet, or plays live."""

    @classmethod
    def of(cls, handle: RequestHandle) -> Chunker:
        """Makes the one that a note's reader wants, once the note has its slot."""
        request = handle.request
        return cls(
            lead_frames=request.lead_frames,
            whole=handle.whole,
            is_live=request.is_live and not handle.whole,
            came_late=(handle.waited_seconds or 0.0) > NOTICEABLE_WAIT_SECONDS,
        )

    def take(self, n_complete: int, now: float, *, ends: bool = False) -> int:
        """Returns the number of frames that go out now, those behind `n_sent`, and counts them as sent.

        Args:
            n_complete: frames of the note that are complete. Wants to be told of the first behind `n_sent`.
            now: seconds since some moment in the past, never falling.
            ends: whether there will be no more.
        """
        n_pending = n_complete - self.n_sent
        if not ends and n_pending < self._size:
            if self._due is None and n_pending > self._lead_frames:  # something that is heard
                self._due = now + self._longest_wait_seconds
            if self._due is None or now < self._due:
                return 0
        self._size = min(self._growth * (self._size - self._lead_frames), self._largest)
        self._lead_frames = 0
        self.is_urgent = self._is_live
        self.n_sent, self._due = n_complete, None
        return n_pending

    @property
    def next_look(self) -> tuple[int, float]:
        """The number of complete frames at which `take` is to be asked next, and the seconds at which it is
        in any case."""
        if self._due is None:
            return self.n_sent + self._lead_frames + 1, math.inf
        return self.n_sent + self._size, self._due
