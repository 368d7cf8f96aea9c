"""Serves one page's WebSocket: the notes it asks for sound, and stop with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from timbrel.aio.player import PlayStream
from timbrel.core.reply import check_numbers
from timbrel.errors import OverloadedError, ServerError, TimbrelError, UnavailableError
from timbrel.explore import messages
from timbrel.explore.messages import BadMessageError, NoteOn, SendBuffer, StalledError
from timbrel.explore.parameters import note_request
from timbrel.explore.static import WebFolder
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_LIVE_NOTES = 64
"""How many notes one page may have; the server has a bound of its own for those that are played live."""

STALLED_CODE = 1013
"""A WebSocket's "try again later"."""

CLOSING_SECONDS = 1.0
"""How long saying so may take."""


class Session:
    """Serves one WebSocket, from the handshake to its end."""

    def __init__(self, websocket: WebSocket, upstream: Upstream, page: WebFolder) -> None:
        self._websocket = websocket
        self._upstream = upstream
        self._page = page
        self._buffer = SendBuffer()
        self._stream: PlayStream | None = None
        self._live: dict[int, PageNote] = {}
        self._previews: dict[PageNote, asyncio.Task[None]] = {}
        self._hello = ""

    async def run(self) -> None:
        """Returns once the socket is closed, and no note of it is left."""
        await self._websocket.accept()
        helpers = [asyncio.create_task(self._send()), asyncio.create_task(self._tell_presence())]
        try:
            with self._upstream.watched():
                await self._read()
        except StalledError:
            with contextlib.suppress(WebSocketDisconnect, TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):  # who does not read does not hear this either
                    await self._websocket.close(STALLED_CODE)
        finally:
            helpers += self._previews.values()
            for task in helpers:
                task.cancel()
            if self._stream is not None:
                await self._stream.close()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _read(self) -> None:
        """Does what the page asks, until it closes."""
        while True:
            received = await self._websocket.receive()
            if received["type"] == "websocket.disconnect":
                return
            try:
                text = received.get("text")
                if text is None:
                    raise BadMessageError("binary messages are not understood; send JSON as text")
                await self._handle(messages.parse_message(text))
            except BadMessageError as error:
                await self._buffer.put(messages.error_of_message(error))

    async def _handle(self, message: messages.Message) -> None:
        match message:
            case NoteOn():
                await self._start(message)
            case messages.NoteChange():
                if (note := self._live.get(message.note_id)) is not None:
                    self._change(note, message)
            case messages.Ping(token):
                await self._buffer.put(messages.pong(token))

    def _change(self, note: PageNote, change: messages.NoteChange) -> None:
        if change.kind == "cancel":
            note.silence()
            if (task := self._previews.get(note)) is not None:
                task.cancel()
            elif self._stream is not None:
                self._stream.cancel(note)
        elif self._stream is not None:
            match change.kind:
                case "off":
                    self._stream.note_off(note)
                case "bend":
                    self._stream.bend(note, change.value)
                case "move":
                    self._stream.move(note, change.value)

    async def _start(self, on: NoteOn) -> None:
        if on.note_id in self._live:
            raise BadMessageError(f"id: a note with the id {on.note_id} is sounding", on.note_id)
        note = PageNote(on.note_id, self._buffer, lambda: self._live.pop(on.note_id), self._upstream.notice)
        self._live[on.note_id] = note
        try:
            if len(self._live) > MAX_LIVE_NOTES:
                raise OverloadedError(f"no more than {MAX_LIVE_NOTES} notes at once")
            manifest = await self._upstream.manifest()
            note.codec = manifest.codec
            request = note_request(on.fields, manifest, pb.AUDIO_FORMAT_FLOAT32)
            if on.live and on.fields.get("seconds") is None:
                request.ClearField("seconds")  # until the key goes up
            if note.is_over:  # its page was given up meanwhile
                return
            if on.live:
                self._open_stream().note_on(note, request, on.lead_seconds)
            else:
                preview = asyncio.create_task(self._run_preview(note, request), name="preview")
                self._previews[note] = preview
                preview.add_done_callback(lambda _: self._previews.pop(note))  # also where it never ran
        except TimbrelError as error:
            await note.fail(error)

    def _open_stream(self) -> PlayStream:
        """Returns the stream of all notes played live: opened with the first, and again after a break."""
        if self._stream is None or self._stream.end is not None:
            self._stream = self._upstream.play(self._stream_ended)
        return self._stream

    def _stream_ended(self, reason: Exception | None) -> None:
        """Takes note of the stream's end, before its notes are cut off."""
        if isinstance(reason, StalledError):
            self._give_up(reason)
        elif isinstance(reason, TimbrelError):
            self._upstream.notice(reason)
        elif reason is not None:
            raise reason
        else:
            for note in list(self._live.values()):
                if note not in self._previews:
                    note.cut_off(UnavailableError("the server ended the connection"))

    async def _run_preview(self, note: PageNote, request: pb.GenerateRequest) -> None:
        """Plays a note that comes as fast as it is written: clicks, previews, paths."""
        try:
            await self._pass_on(note, request)
        except StalledError as error:
            self._give_up(error)

    async def _pass_on(self, note: PageNote, request: pb.GenerateRequest) -> None:
        try:
            async with contextlib.aclosing(self._upstream.generate(request)) as replies:
                async for reply in replies:
                    await note.take(reply)
            if not note.is_over:
                raise ServerError("the server ended the stream before the note was finished")
        except StalledError:
            raise
        except TimbrelError as error:
            await note.fail(error)

    def _give_up(self, error: StalledError) -> None:
        """Ends every note of a page that takes no more sound, and says so for when it reads again."""
        self._buffer.drop_sound()
        for note in list(self._live.values()):
            if self._stream is not None:
                self._stream.cancel(note)
            note.cut_off(error)
        for task in list(self._previews.values()):
            if task is not asyncio.current_task():
                task.cancel()

    async def _send(self) -> None:
        """Writes the buffer to the socket. The socket takes no more than fits its own buffer."""
        with contextlib.suppress(WebSocketDisconnect):  # the reader hears of it too
            while True:
                frame = await self._buffer.take()
                if isinstance(frame, str):
                    await self._websocket.send_text(frame)
                else:
                    await self._websocket.send_bytes(frame)

    async def _tell_presence(self) -> None:
        """Greets, and says when and why the server is away, and when it is back or serves another bundle."""
        with contextlib.suppress(StalledError):
            presence = self._upstream.presence
            if presence.is_serving:
                await self._greet()
            else:
                await self._buffer.put(messages.server(False, presence.message))
            while True:
                was_serving = presence.is_serving
                presence = await self._upstream.changed(presence)
                if not (was_serving and presence.is_serving):  # away for another reason is told, too
                    await self._buffer.put(messages.server(presence.is_serving, presence.message))
                if presence.is_serving:
                    await self._greet()

    async def _greet(self) -> None:
        """States bundle and page, where they have not been stated. Where nobody answers, `changed` tells."""
        with contextlib.suppress(TimbrelError):
            manifest = await self._upstream.manifest()
            hello = messages.hello(manifest.bundle_hash, manifest.codec.sample_rate, self._page.identity())
            if hello != self._hello:
                self._hello = hello
                await self._buffer.put(hello)


class PageNote:
    """Turns the server's replies about one note into messages for the page, until the note is over."""

    def __init__(
        self,
        note_id: int,
        buffer: SendBuffer,
        on_over: Callable[[], object],
        on_error: Callable[[TimbrelError], None],
    ) -> None:
        """Calls `on_over` once, when nothing more will be said of it, and `on_error` with an error of its."""
        self.note_id = note_id
        self._buffer = buffer
        self._on_over = on_over
        self._on_error = on_error
        self._release_said = False
        self._cents: float | None = None  # that were said last
        self.codec = pb.CodecSpec()
        """The codec that decodes it; to be set before it begins."""
        self.is_over = False
        """Whether all has been said."""

    async def take(self, reply: pb.GenerateResponse) -> None:
        """Passes one reply on; raises StalledError where the page does not take it."""
        if self.is_over:
            return
        try:
            check_numbers(reply)
        except ServerError as error:
            await self.fail(error)
            return
        if reply.HasField("header"):
            header = reply.header
            await self._buffer.put(messages.start(self.note_id, header.seed, header.sample_rate))
        if not self._release_said and reply.held_seconds and not self.is_over:
            self._release_said = True
            await self._buffer.put(messages.release(self.note_id, reply.held_seconds))
        if reply.HasField("cents") and reply.cents != self._cents and not self.is_over:
            self._cents = reply.cents
            await self._buffer.put(messages.bent(self.note_id, reply.cents, self.codec))
        if reply.audio and not self.is_over:
            await self._buffer.put(messages.audio(self.note_id, reply.audio))
        if reply.finish_reason and not self.is_over:
            # Over before the page can read of it: it may use the id again as soon as it has.
            self.silence()
            await self._buffer.put(messages.end(self.note_id, reply.held_seconds, reply.let_go))

    async def fail(self, error: TimbrelError) -> None:
        """Says why there is no more of the note, where it is not over; raises as `take` does."""
        self._on_error(error)
        if not self.is_over:
            self.silence()
            await self._buffer.put(messages.error_of_note(self.note_id, error))

    def cut_off(self, error: TimbrelError) -> None:
        """Says likewise why, whether or not the page takes it."""
        if not self.is_over:
            self.silence()
            self._buffer.put_at_once(messages.error_of_note(self.note_id, error))

    def silence(self) -> None:
        """Says nothing more."""
        if not self.is_over:
            self.is_over = True
            self._on_over()
