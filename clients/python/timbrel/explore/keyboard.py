"""Notes played live: all of one page's on one Play stream, opened with the first and again after a break."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

from timbrel.aio.transport import StreamCall
from timbrel.core.faults import error_from_status
from timbrel.errors import CancelledError, TimbrelError, UnavailableError
from timbrel.explore.outbox import StalledError
from timbrel.explore.sounding import Sounding
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


class Keyboard:
    """The keys of one page."""

    def __init__(self, upstream: Upstream, on_stalled: Callable[[StalledError], None]) -> None:
        """
        Args:
            on_stalled: called where the page takes no more sound.
        """
        self._upstream = upstream
        self._on_stalled = on_stalled
        # The page may use an id again while the server still speaks of its last bearer: it gets others.
        self._ids = itertools.count(1)
        self._stream: _Stream | None = None

    def on(self, sounding: Sounding, request: pb.GenerateRequest, lead_seconds: float | None) -> None:
        """A key goes down."""
        if self._stream is None or self._stream.is_over:
            self._stream = _Stream(self._upstream, self._on_stalled)
        self._stream.on(next(self._ids), sounding, pb.NoteOn(note=request, lead_seconds=lead_seconds))

    def off(self, sounding: Sounding) -> None:
        """It goes up. Harmless where this is no note of the keyboard's."""
        if self._stream is not None:
            self._stream.say(sounding, pb.PlayRequest(note_off=pb.NoteOff()))

    def cancel(self, sounding: Sounding) -> None:
        """The note ends at once. Harmless likewise."""
        if self._stream is not None:
            self._stream.say(sounding, pb.PlayRequest(cancel=pb.NoteCancel()))

    async def close(self) -> None:
        """Ends every note at once."""
        if self._stream is not None:
            await self._stream.close()


class _Stream:
    """One Play call, and who is heard on it."""

    def __init__(self, upstream: Upstream, on_stalled: Callable[[StalledError], None]) -> None:
        self._upstream = upstream
        self._on_stalled = on_stalled
        self._requests: asyncio.Queue[pb.PlayRequest] = asyncio.Queue()
        self._soundings: dict[int, Sounding] = {}
        self.is_over = False
        """Whether it takes no more notes."""
        self._call: StreamCall[pb.PlayResponse] = upstream.play(self._asked())
        self._task = asyncio.create_task(self._listen(), name="keyboard")

    def on(self, stream_id: int, sounding: Sounding, note_on: pb.NoteOn) -> None:
        self._soundings[stream_id] = sounding
        self._requests.put_nowait(pb.PlayRequest(id=stream_id, note_on=note_on))

    def say(self, sounding: Sounding, request: pb.PlayRequest) -> None:
        for stream_id, each in self._soundings.items():
            if each is sounding:
                request.id = stream_id
                self._requests.put_nowait(request)

    async def close(self) -> None:
        self.is_over = True
        self._call.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _asked(self) -> AsyncIterator[pb.PlayRequest]:
        while True:
            yield await self._requests.get()

    async def _listen(self) -> None:
        try:
            async for response in self._call:
                await self._hear(response)
            self._end(UnavailableError("the server ended the connection"))
        except StalledError as error:
            self.is_over = True
            self._call.cancel()
            self._on_stalled(error)
        except TimbrelError as error:
            self._upstream.notice(error)
            self._end(error)
        finally:
            self.is_over = True

    async def _hear(self, response: pb.PlayResponse) -> None:
        event = response.WhichOneof("event")
        sounding = self._soundings.get(response.id)
        if sounding is None or event == "refusal":  # of a note_off that came too late
            return
        if event == "reply":
            await sounding.take(response.reply)
            if response.reply.finish_reason:
                del self._soundings[response.id]
        else:
            del self._soundings[response.id]
            error = error_from_status(
                response.error.code, response.error.message, response.error.SerializeToString()
            )
            self._upstream.notice(error)
            await sounding.fail(error)

    def _end(self, error: TimbrelError) -> None:
        reason = UnavailableError(str(error)) if isinstance(error, CancelledError) else error
        for sounding in list(self._soundings.values()):
            sounding.fail_at_once(reason)
        self._soundings.clear()
