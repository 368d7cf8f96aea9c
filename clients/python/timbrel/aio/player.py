"""An instrument played live, in an event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType

from timbrel.aio.audio import decode_as_it_comes
from timbrel.aio.connection import AsyncConnection
from timbrel.aio.transport import AsyncPlayCall
from timbrel.audio.stream import Audio
from timbrel.core.faults import error_from_status
from timbrel.core.reply import NoteAssembler
from timbrel.core.request import NoteRequest, request_to_pb
from timbrel.errors import TimbrelError, UnavailableError
from timbrel_bundle.codec import CodecStream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


class AsyncPlayedNote:
    """A note that sounds: `async for` gives its audio, float32 [samples], until it has died away.

        >>> async def main():
        ...     async with timbrel.AsyncClient() as client, client.play() as player:
        ...         note = await player.note_on("Violin", 60, seed=1)
        ...         beginning = await anext(note)
        ...         note.off()
        ...         rest = [chunk async for chunk in note]
        ...     return note.seed
        >>> asyncio.run(main())
        1

    Reading raises what `AsyncClient.generate` raises, and timbrel's CancelledError after `cancel`.
    """

    def __init__(
        self,
        note_id: int,
        requests: asyncio.Queue[pb.PlayRequest | None],
        assembler: NoteAssembler,
        stream: CodecStream,
    ) -> None:
        """Use `AsyncPlayer.note_on`."""
        self._id = note_id
        self._requests = requests
        self._replies: asyncio.Queue[pb.GenerateResponse | TimbrelError] = asyncio.Queue()
        self._audio: AsyncGenerator[Audio, None] = decode_as_it_comes(self._read(), assembler, stream)
        self.seed: int | None = None
        """The seed in use; known with the first audio."""
        self.held_seconds: float | None = None
        """How long the key was held, in seconds; known once the note has ended. `AsyncClient.generate` for so
        many with the same seed gives the same codes."""

    def __aiter__(self) -> AsyncIterator[Audio]:
        return self

    async def __anext__(self) -> Audio:
        return await anext(self._audio)

    def off(self) -> None:
        """The key goes up; the release follows. Harmless where it is up, or where the note has ended."""
        self._requests.put_nowait(pb.PlayRequest(id=self._id, note_off=pb.NoteOff()))

    def cancel(self) -> None:
        """Ends the note at once. Harmless where it has ended."""
        self._requests.put_nowait(pb.PlayRequest(id=self._id, cancel=pb.NoteCancel()))

    def _take(self, reply: pb.GenerateResponse | TimbrelError) -> None:
        """The player's side of it: what comes next."""
        self._replies.put_nowait(reply)

    async def _read(self) -> AsyncIterator[pb.GenerateResponse]:
        while True:
            reply = await self._replies.get()
            if isinstance(reply, TimbrelError):
                raise reply
            if reply.HasField("header"):
                self.seed = reply.header.seed
            yield reply
            if reply.finish_reason:
                self.held_seconds = reply.held_seconds
                return


class AsyncPlayer:
    """One stream of notes to a server, made by `AsyncClient.play`. Tasks may share it.

        >>> async def main():
        ...     async with timbrel.AsyncClient() as client, client.play() as player:
        ...         chord = [await player.note_on("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        ...     return [len([chunk async for chunk in note]) > 0 for note in chord]
        >>> asyncio.run(main())
        [True, True, True]

    Leaving the `async with` block lets go of every key and waits until the server has written what still
    sounds, which can be read afterwards; after an exception it ends every note at once.
    """

    def __init__(self, connection: AsyncConnection, lead_seconds: float | None) -> None:
        """Use `AsyncClient.play`."""
        self._connection = connection
        self._lead_seconds = lead_seconds
        self._requests: asyncio.Queue[pb.PlayRequest | None] = asyncio.Queue()
        self._ids = itertools.count(1)
        self._live: dict[int, AsyncPlayedNote] = {}
        self._end: TimbrelError | None = UnavailableError(
            "the player is not open: enter its `async with` block"
        )
        self._call: AsyncPlayCall | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncPlayer:
        decoder = await self._connection.decoder()
        await asyncio.to_thread(decoder.stream)  # loaded now, not with the first note
        self._call = (await self._connection.open()).play(self._messages())
        self._end = None
        self._reader = asyncio.create_task(self._listen(self._call))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._call is None or self._reader is None:
            return
        if error is not None:
            self._call.cancel()
        self._requests.put_nowait(None)
        try:
            await self._reader
        except asyncio.CancelledError:
            self._call.cancel()
            raise

    async def note_on(
        self,
        timbre: tuple[float, float] | str,
        pitch: int = 60,
        velocity: int = 100,
        seconds: float | None = None,
        seed: int | None = None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> AsyncPlayedNote:
        """A key goes down, until the note's `off`, for `seconds` at most; None: the bundle's longest hold.

        The other arguments are those of `AsyncClient.generate`.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            TimbrelError: what ended the stream, if it has ended.
        """
        manifest = (await self._connection.model()).manifest
        point = await self._connection.point(timbre)
        longest = manifest.ranges.seconds_max if seconds is None else seconds
        wanted = NoteRequest(point, pitch, velocity, longest, seed, temperature, top_k, top_p).seeded()
        message = request_to_pb(wanted, manifest)
        stream = (await self._connection.decoder()).stream()
        if self._end is not None:
            raise self._end
        note = AsyncPlayedNote(note_id := next(self._ids), self._requests, NoteAssembler(manifest), stream)
        self._live[note_id] = note
        note_on = pb.NoteOn(note=message, lead_seconds=self._lead_seconds)
        self._requests.put_nowait(pb.PlayRequest(id=note_id, note_on=note_on))
        return note

    async def _messages(self) -> AsyncIterator[pb.PlayRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _listen(self, call: AsyncPlayCall) -> None:
        """The reader's task."""
        end: TimbrelError = UnavailableError("the player is closed")
        try:
            async for response in call:
                self._hand_out(response)
        except TimbrelError as error:
            end = error
        self._end = end
        for note in self._live.values():
            note._take(end)

    def _hand_out(self, response: pb.PlayResponse) -> None:
        event = response.WhichOneof("event")
        note = self._live.get(response.id)
        if note is None or event == "refusal":  # concerns nobody: every note here has its own id
            return
        if event == "reply":
            note._take(response.reply)
        else:
            error = response.error
            note._take(error_from_status(error.code, error.message, error.SerializeToString()))
        if event == "error" or response.reply.finish_reason:
            del self._live[response.id]
