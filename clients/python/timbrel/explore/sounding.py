"""One note's life as the page hears of it: it starts, sounds, and ends or fails."""

from __future__ import annotations

from collections.abc import Callable

from timbrel.errors import TimbrelError
from timbrel.explore import messages
from timbrel.explore.outbox import Outbox
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


class Sounding:
    """Turns the server's replies about one note into messages for the page, until the note is over."""

    def __init__(self, note_id: int, outbox: Outbox, on_over: Callable[[Sounding], None]) -> None:
        """
        Args:
            note_id: the page's.
            on_over: called once, when nothing more will be said of the note.
        """
        self.note_id = note_id
        self._outbox = outbox
        self._on_over = on_over
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether all has been said."""
        return self._is_over

    async def take(self, reply: pb.GenerateResponse) -> None:
        """Passes one reply on.

        Raises:
            StalledError: the page does not take it.
        """
        if reply.HasField("header") and not self._is_over:
            header = reply.header
            await self._outbox.put(messages.start(self.note_id, header.seed, header.sample_rate))
        if reply.audio and not self._is_over:
            await self._outbox.put(messages.audio(self.note_id, reply.audio))
        if reply.finish_reason and not self._is_over:
            truncated = reply.finish_reason == pb.FINISH_REASON_CAP
            # Over before the page can read of it: it may use the id again as soon as it has.
            self.silence()
            await self._outbox.put(messages.end(self.note_id, reply.held_seconds, truncated))

    async def fail(self, error: TimbrelError) -> None:
        """Says why there is no more of the note, where it is not over.

        Raises:
            StalledError: the page does not take it.
        """
        if not self._is_over:
            self.silence()
            await self._outbox.put(messages.error_of_note(self.note_id, error))

    def fail_at_once(self, error: TimbrelError) -> None:
        """Likewise, whether or not the page takes it."""
        if not self._is_over:
            self.silence()
            self._outbox.put_at_once(messages.error_of_note(self.note_id, error))

    def silence(self) -> None:
        """Says nothing more."""
        if not self._is_over:
            self._is_over = True
            self._on_over(self)
