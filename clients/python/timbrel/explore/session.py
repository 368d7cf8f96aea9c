"""One page's WebSocket: what it asks for sounds, and stops with it."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from timbrel.errors import OverloadedError, TimbrelError
from timbrel.explore import messages
from timbrel.explore.keyboard import Keyboard
from timbrel.explore.messages import BadMessageError, Message, NoteCancel, NoteOff, NoteOn, Ping
from timbrel.explore.outbox import Outbox, StalledError
from timbrel.explore.parameters import note_request
from timbrel.explore.preview import preview
from timbrel.explore.sounding import Sounding
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_LIVE_NOTES = 64
"""Of one page. The server has a bound of its own for those that are played live."""

STALLED_CODE = 1013
"""A WebSocket's "try again later"."""

CLOSING_SECONDS = 1.0
"""Allowed for saying so."""


class Session:
    """From the handshake to the end of one WebSocket."""

    def __init__(self, websocket: WebSocket, upstream: Upstream, outbox: Outbox | None = None) -> None:
        self._websocket = websocket
        self._upstream = upstream
        self._outbox = outbox or Outbox()
        self._keyboard = Keyboard(upstream, self._give_up)
        self._live: dict[int, Sounding] = {}
        self._previews: dict[Sounding, asyncio.Task[None]] = {}
        self._sample_rate: int | None = None

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
            await self._keyboard.close()
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
                await self._outbox.put(messages.error_of_message(error))

    async def _handle(self, message: Message) -> None:
        match message:
            case NoteOn():
                await self._start(message)
            case NoteOff(note_id):
                if (sounding := self._live.get(note_id)) is not None:
                    self._keyboard.off(sounding)
            case NoteCancel(note_id):
                if (sounding := self._live.get(note_id)) is not None:
                    self._cancel(sounding)
            case Ping(token):
                await self._outbox.put(messages.pong(token))

    async def _start(self, on: NoteOn) -> None:
        if on.note_id in self._live:
            raise BadMessageError(f"id: a note with the id {on.note_id} is sounding", on.note_id)
        sounding = Sounding(on.note_id, self._outbox, self._forget)
        self._live[on.note_id] = sounding
        try:
            if len(self._live) > MAX_LIVE_NOTES:
                raise OverloadedError(f"no more than {MAX_LIVE_NOTES} notes at once")
            request = await self._request(on)
            if on.live:
                self._keyboard.on(sounding, request, on.lead_seconds)
            else:
                self._preview(sounding, request)
        except TimbrelError as error:
            await sounding.fail(error)

    async def _request(self, on: NoteOn) -> pb.GenerateRequest:
        manifest = await self._upstream.manifest()
        fields = dict(on.fields)
        if on.live and fields.get("seconds") is None:
            fields["seconds"] = manifest.ranges.seconds_max  # until the key goes up
        return note_request(fields, manifest, pb.AUDIO_FORMAT_FLOAT32)

    def _preview(self, sounding: Sounding, request: pb.GenerateRequest) -> None:
        async def run() -> None:
            try:
                await preview(self._upstream, sounding, request)
            except StalledError as error:
                self._give_up(error)
            finally:
                self._previews.pop(sounding, None)

        self._previews[sounding] = asyncio.create_task(run(), name="preview")

    def _cancel(self, sounding: Sounding) -> None:
        sounding.silence()
        if (task := self._previews.get(sounding)) is not None:
            task.cancel()
        else:
            self._keyboard.cancel(sounding)

    def _forget(self, sounding: Sounding) -> None:
        self._live.pop(sounding.note_id, None)

    def _give_up(self, error: StalledError) -> None:
        """Ends every note of a page that takes no more sound, and says so for when it reads again."""
        self._outbox.drop_sound()
        for sounding in list(self._live.values()):
            self._keyboard.cancel(sounding)
            sounding.fail_at_once(error)
        for task in list(self._previews.values()):
            if task is not asyncio.current_task():
                task.cancel()

    async def _send(self) -> None:
        """Writes the outbox to the socket. The socket takes no more than fits its own buffer."""
        with contextlib.suppress(WebSocketDisconnect):  # the reader hears of it too
            while True:
                frame = await self._outbox.take()
                if isinstance(frame, str):
                    await self._websocket.send_text(frame)
                else:
                    await self._websocket.send_bytes(frame)

    async def _tell_presence(self) -> None:
        """Greets, and says when the server goes away and when it is back."""
        with contextlib.suppress(StalledError):
            presence = self._upstream.presence
            if presence.is_serving:
                await self._greet()
            else:
                await self._outbox.put(messages.server(False, presence.message))
            while True:
                presence = await self._upstream.changed(presence)
                await self._outbox.put(messages.server(presence.is_serving, presence.message))
                if presence.is_serving:
                    await self._greet()

    async def _greet(self) -> None:
        """States the sample rate, where it has not been stated. Where nobody answers, `changed` tells."""
        with contextlib.suppress(TimbrelError):
            sample_rate = (await self._upstream.manifest()).codec.sample_rate
            if sample_rate != self._sample_rate:
                self._sample_rate = sample_rate
                await self._outbox.put(messages.hello(sample_rate))
