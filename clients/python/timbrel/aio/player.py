"""An instrument played live, in an event loop, and the stream of notes beneath it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from timbrel.aio.connection import Connection
from timbrel.aio.decoding import SharedDecoding
from timbrel.aio.transport import Transport
from timbrel.core.play import LiveNotes, WrittenAhead
from timbrel.core.reply import Audio, NoteAssembler, ReplyLimit
from timbrel.core.request import NoteRequest, Path, Timbre, check_bend, check_move
from timbrel.errors import (
    CancelledError,
    DeadlineExceededError,
    ServerError,
    TimbrelError,
    UnavailableError,
    refusal,
)
from timbrel_bundle.codec import CodecChunk, CodecStream
from timbrel_bundle.request_fields import Cents, is_finite
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

_Reply = TypeVar("_Reply")

CLOSED = "the player is closed"

UNREAD = (
    "more of the note came unread than the longest note takes, and it was cancelled: read a note as it is"
    " played, or let go of its key"
)

Heard = pb.GenerateResponse | TimbrelError
"""The next reply of a note, or the error that ended it."""


async def within(seconds: float | None, reply: Awaitable[_Reply]) -> _Reply:
    """Waits for the next reply of a note. Raises DeadlineExceededError: there was none for so long."""
    try:
        async with asyncio.timeout(seconds):
            return await reply
    except TimeoutError:
        raise DeadlineExceededError(f"nothing more of the note came within {seconds:g} seconds") from None


class NoteListener(Protocol):
    """Is told of one note of a `PlayStream`, by the stream's own task."""

    async def take(self, reply: pb.GenerateResponse) -> None:
        """Takes the note's next reply; the last one has a finish reason.

        Until this returns, the stream is read no further: who takes slowly slows the server down. An
        exception ends the stream.
        """

    async def fail(self, error: TimbrelError) -> None:
        """The server has ended this note by an error; the stream goes on. Likewise waited for."""

    def cut_off(self, error: TimbrelError) -> None:
        """The stream has ended before the note did."""


class PlayStream:
    """One Play call, from its opening to its end: many notes, each with a listener. For one event loop.

    It takes requests as they are and hands out the server's replies as they come. Once it is over, by
    whatever, it takes no more notes, and another is to be opened: that costs nothing before its first note.
    """

    def __init__(
        self, transport: Transport, on_end: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Opens the call.

        Args:
            on_end: called once, before the listeners that are cut off, where the stream has ended otherwise
                than by `close`: with the error that it ended by, or that a listener raised (none is cut off
                then); None where the server ended it in good order.
        """
        self._notes: LiveNotes[NoteListener] = LiveNotes()
        self._requests: asyncio.Queue[pb.PlayRequest | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._n_heard = 0
        self.end: TimbrelError | None = None
        """Why it takes no more notes; None while it does."""
        self._call = transport.play(self._messages())
        self._reader = asyncio.create_task(self._read(), name="play-stream")

    def note_on(
        self, listener: NoteListener, request: pb.GenerateRequest, lead_seconds: float | None = None
    ) -> None:
        """A key goes down; the listener, of this note only, stands for it from now on. Raises TimbrelError:
        the stream's `end`."""
        if self.end is not None:
            raise self.end
        self._requests.put_nowait(self._notes.note_on(listener, request, lead_seconds))

    def note_off(self, listener: NoteListener) -> None:
        """Its key goes up; the release follows. Harmless where it is up, or where the note has ended."""
        self._send(listener, note_off=pb.NoteOff())

    def cancel(self, listener: NoteListener) -> None:
        """Ends the note at once: it fails by CancelledError. Harmless where it has ended."""
        self._send(listener, cancel=pb.NoteCancel())

    def bend(self, listener: NoteListener, cents: float) -> None:
        """Bends what the server decodes of a note from now on. Harmless where it has ended."""
        self._send(listener, bend=pb.Bend(cents=cents))

    def move(self, listener: NoteListener, timbre: tuple[float, float]) -> None:
        """Moves a note to another timbre. Harmless where it has ended."""
        self._send(listener, move=pb.Move(timbre=pb.Timbre(x=timbre[0], y=timbre[1])))

    def move_all(self, timbre: tuple[float, float]) -> None:
        """Moves every note that sounds."""
        move = pb.Move(timbre=pb.Timbre(x=timbre[0], y=timbre[1]), all=True)
        self._requests.put_nowait(pb.PlayRequest(move=move))

    async def finish(self, patience_seconds: float | None = None) -> None:
        """Lets go of every key, and returns when the server has written what still sounds.

        A server that gives nothing more of any note for so many seconds is waited for no longer.
        """
        self._requests.put_nowait(None)
        try:
            while not self._reader.done():
                n_heard = self._n_heard
                await asyncio.wait({self._reader}, timeout=patience_seconds)
                if self._n_heard == n_heard:
                    self._call.cancel()
            await self._reader
        except asyncio.CancelledError:
            self._call.cancel()
            raise

    def cancel_all(self) -> None:
        """Ends every note at once: each is cut off by CancelledError."""
        self._call.cancel()

    def stop(self) -> None:
        """Ends the stream at once and tells nobody."""
        self.end = self.end or UnavailableError(CLOSED)
        self._notes.end()
        self._call.cancel()

    async def close(self) -> None:
        """Stops the stream, and returns when nothing of it is left."""
        self.stop()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    def abandon(self) -> None:
        """Stops the stream, of which nobody holds a note any more; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the stream has ended
            self._loop.call_soon_threadsafe(self.stop)

    def _send(self, listener: NoteListener, **action: Any) -> None:
        """From any thread: a MIDI keyboard's callback, say, has one of its own."""
        if (message := self._notes.about(listener, **action)) is None:
            return
        if _runs_here(self._loop):
            self._requests.put_nowait(message)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the note has ended
                self._loop.call_soon_threadsafe(self._requests.put_nowait, message)

    async def _messages(self) -> AsyncIterator[pb.PlayRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _read(self) -> None:
        """The reader's task."""
        end: TimbrelError = UnavailableError(CLOSED)
        reason: Exception | None = None
        try:
            async for response in self._call:
                try:
                    await self._tell(response)
                except Exception as error:
                    self.stop()
                    reason = error
                    break
        except TimbrelError as error:
            reason = end = error
        self.end = self.end or end
        self._requests.put_nowait(None)  # grpc's task, which would wait for more of them for ever
        if self._on_end is not None:
            self._on_end(reason)
        for listener in self._notes.end():
            listener.cut_off(end)

    async def _tell(self, response: pb.PlayResponse) -> None:
        if (heard := self._notes.receive(response)) is not None:
            self._n_heard += 1
            listener, reply = heard
            await (listener.fail(reply) if isinstance(reply, TimbrelError) else listener.take(reply))


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # no loop runs in this thread
        return False


class Wheel:
    """A pitch wheel: bends what is decoded from now on, on top of another wheel."""

    def __init__(self, base: Wheel | None = None) -> None:
        self._base = base
        self._own = 0.0
        self.codec: pb.CodecSpec = pb.CodecSpec(bends=True) if base is None else base.codec
        """The codec whose notes it bends; until that is known, one that can."""

    @property
    def cents(self) -> float:
        """The sum of its own part and the other wheel's."""
        return self._own + (self._base.cents if self._base is not None else 0.0)

    def turn(self, cents: float) -> None:
        """Sets its own part. Raises InvalidRequestError where that is out of range, or the codec cannot."""
        if not is_finite(cents):
            raise refusal("cents", f"{cents!r:.40} is no number; one of -2400 to 2400 is needed")
        check_bend(cents, self.codec)
        self._own = float(cents)


class NoteInbox:
    """A listener that hands on what it is told of a note, one thing after the other: to a queue, say.

    Who reads slowly does not slow the stream down, which is other notes' too: so what a note may send is
    limited, and one that sends more is cancelled.
    """

    def __init__(self, put: Callable[[Heard], None], manifest: pb.Manifest, stream: PlayStream) -> None:
        self.cut_off = put
        self.stream = stream
        self.ahead = WrittenAhead(manifest)
        """What is left out of the note once its key goes up."""
        self._is_endless = bool(manifest.model.hold_frames)
        self._limit: ReplyLimit | None = ReplyLimit(manifest)

    async def take(self, reply: pb.GenerateResponse) -> None:
        if self._limit is None:
            return  # it has failed
        try:
            self._limit.take(reply)
        except ServerError as error:
            self._limit = None
            self.cut_off(CancelledError(UNREAD) if self._is_endless else error)
            self.stream.cancel(self)
        else:
            self.ahead.told(reply)
            self.cut_off(reply)

    async def fail(self, error: TimbrelError) -> None:
        self.cut_off(error)

    def was_read(self, reply: pb.GenerateResponse) -> None:
        """A reply that was put is kept no more; from any one thread."""
        if self._is_endless and (limit := self._limit) is not None:
            limit.was_read(reply)


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

    Reading raises what `AsyncClient.generate` raises, DeadlineExceededError where nothing comes for as long
    as the client allows a call, and timbrel's CancelledError after `cancel`. A task that is cancelled while
    it reads, by `asyncio.wait_for`, say, takes nothing from the note: the key stays down, and who reads next
    goes on where it was. Any thread may let go of its key, cancel or bend it. Its attributes are as the
    properties of `timbrel.PlayedNote`.
    """

    def __init__(
        self,
        player: AsyncPlayer,
        listener: NoteInbox,
        replies: asyncio.Queue[Heard],
        manifest: pb.Manifest,
        codec: CodecStream,
    ) -> None:
        """Use `AsyncPlayer.note_on`."""
        self._player = player
        self._wheel = Wheel(player._wheel)
        self._stream = listener.stream
        self._patience = player._connection.timeout
        self._listener = listener
        self._replies = replies
        live, decoding = (self._wheel, listener.ahead), player._connection.decoding
        self._audio = decode_as_it_comes(self._read(), manifest, codec, decoding, live)
        self._turn = asyncio.Lock()  # to read
        self._next: asyncio.Future[Audio | None] | None = None  # what a cancelled reader has left, too
        self.seed: int | None = None
        self.held_seconds: float | None = None
        self.let_go: bool | None = None

    def __aiter__(self) -> AsyncIterator[Audio]:
        return self

    async def __anext__(self) -> Audio:
        if (audio := await self._next_audio()) is None:
            raise StopAsyncIteration
        return audio

    async def _next_audio(self) -> Audio | None:
        """Reads on, as `async for` does. None: the note has died away."""
        async with self._turn:
            if self._next is None:
                self._next = asyncio.ensure_future(anext(self._audio, None))
                # Where nobody reads on, nobody has to hear of an error.
                self._next.add_done_callback(lambda read: read.cancelled() or read.exception())
            await asyncio.wait({self._next})  # a reader that is cancelled here leaves it to the next one
            done, self._next = self._next, None
        if (audio := done.result()) is not None:
            self._listener.ahead.heard(time.monotonic())
        return audio

    def __del__(self) -> None:
        """Nobody can read the note or let go of its key any more: it need not be written on."""
        self._stream.cancel(self._listener)

    def off(self) -> None:
        """The key goes up; see `PlayedNote.off`."""
        self._listener.ahead.key_up(time.monotonic())
        self._stream.note_off(self._listener)

    def cancel(self) -> None:
        """Ends the note at once. Harmless where it has ended."""
        self._stream.cancel(self._listener)

    def bend(self, cents: float) -> None:
        """Bends this note; see `PlayedNote.bend`."""
        self._wheel.turn(cents)

    async def move(self, timbre: Timbre) -> None:
        """The note takes on another timbre while it sounds; see `PlayedNote.move`."""
        self._stream.move(self._listener, await self._player._point_to_move_to(timbre))

    async def _read(self) -> AsyncIterator[pb.GenerateResponse]:
        while True:
            try:
                reply = await within(self._patience, self._replies.get())
            except DeadlineExceededError:
                self.cancel()
                raise
            if isinstance(reply, TimbrelError):
                raise reply
            self._listener.was_read(reply)
            if reply.HasField("header"):
                self.seed = reply.header.seed
            yield reply
            if reply.finish_reason:
                self.held_seconds, self.let_go = reply.held_seconds, reply.let_go
                return


class AsyncPlayer:
    """One stream of notes to a server, made by `AsyncClient.play`. Tasks may share it.

        >>> async def main():
        ...     async with timbrel.AsyncClient() as client, client.play() as player:
        ...         chord = [await player.note_on("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        ...     return [len([chunk async for chunk in note]) > 0 for note in chord]
        >>> asyncio.run(main())
        [True, True, True]

    Entering the `async with` block, or the first note, opens it. Leaving the block lets go of every key and
    waits until the server has written what still sounds, which can be read afterwards; after an exception it
    ends every note at once. In a notebook, where there is no block, `close` does it.
    """

    def __init__(self, connection: Connection, lead_seconds: float | None) -> None:
        """Use `AsyncClient.play`."""
        self._connection = connection
        self._lead_seconds = lead_seconds
        self._stream: PlayStream | None = None
        self._is_closed = False
        self._wheel = Wheel()

    def __del__(self) -> None:
        """Nobody can play on it or hear its notes any more, each of which holds it: its stream ends."""
        if self._stream is not None:
            self._stream.abandon()

    async def __aenter__(self) -> AsyncPlayer:
        await self._open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._stream is not None:
            self._stream.cancel_all()
        await self.close()

    async def close(self) -> None:
        """Lets go of every key, and waits until the server has written what still sounds."""
        self._is_closed = True
        if self._stream is not None:
            await self._stream.finish(self._connection.timeout)

    async def note_on(
        self,
        timbre: Timbre | Path,
        pitch: int = NoteRequest.pitch,
        velocity: int = NoteRequest.velocity,
        seconds: float | None = None,
        seed: int | None = None,
        *,
        cents: Cents = 0.0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> AsyncPlayedNote:
        """A key goes down, until the note's `off`, for `seconds` at most.

        None: as long as the server lets it; see `Player.note_on`.

        The other arguments are those of `AsyncClient.generate`.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            TimbrelError: what ended the stream, if it has ended.
        """
        stream = await self._open()
        longest = (await self._connection.model()).manifest.ranges.seconds_max
        held = longest if seconds is None else seconds
        note = NoteRequest(timbre, pitch, velocity, held, seed, temperature, top_k, top_p, cents)
        _, message, manifest = await self._connection.placed(note)
        if seconds is None:
            message.ClearField("seconds")  # until the key goes up
        codec = (await self._connection.decoder()).stream(message.seed, note.cents)
        replies: asyncio.Queue[Heard] = asyncio.Queue()
        listener = NoteInbox(replies.put_nowait, manifest, stream)
        stream.note_on(listener, message, self._lead_seconds)
        return AsyncPlayedNote(self, listener, replies, manifest, codec)

    def bend(self, cents: float) -> None:
        """Bends every note, those to come included; see `Player.bend`."""
        self._wheel.turn(cents)

    async def move(self, timbre: Timbre) -> None:
        """Every note that sounds takes on another timbre; see `Player.move`."""
        stream = await self._open()
        stream.move_all(await self._point_to_move_to(timbre))

    async def _point_to_move_to(self, timbre: Timbre) -> tuple[float, float]:
        point = await self._connection.point(timbre)
        check_move(point, self._wheel.codec)
        return point

    async def _open(self) -> PlayStream:
        if self._stream is None and not self._is_closed:
            decoder = await self._connection.decoder()
            codec = await asyncio.to_thread(decoder.load)  # now, not with the first note
            self._wheel.codec = codec.spec
            self._wheel.turn(self._wheel.cents)  # as it was turned before
            transport = await self._connection.open()
            if not self._is_closed:  # or opened, by another task meanwhile
                self._stream = self._stream or PlayStream(transport)
        if self._stream is None:
            raise UnavailableError(CLOSED)
        return self._stream


async def decode_as_it_comes(
    replies: AsyncIterable[pb.GenerateResponse],
    manifest: pb.Manifest,
    codec: CodecStream,
    decoding: SharedDecoding,
    live: tuple[Wheel, WrittenAhead] | None = None,
) -> AsyncGenerator[Audio, None]:
    """Yields the audio of each reply, none of it empty; the codec runs in a thread, so that the loop goes on.

    Of a live note a wheel bends what is decoded, a frame at a time, and what was written ahead of a key that
    went up is left out; of another, a reply is decoded at once. Raises as `NoteAssembler`.
    """
    is_endless = live is not None and bool(manifest.model.hold_frames)
    assembler = NoteAssembler(manifest, is_endless=is_endless, keeps=False)
    async for reply in replies:
        codes = assembler.feed(reply)
        for part in [codes] if live is None else live[1].kept(codes):
            bend = 0.0 if live is None else live[0].cents
            if len(audio := await decoding.decode(CodecChunk(codec, part, cents=bend))):
                yield audio
    nothing = assembler.finish().codes[:0]
    if len(rest := await decoding.decode(CodecChunk(codec, nothing, last=True))):
        yield rest
