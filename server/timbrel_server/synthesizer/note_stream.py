"""A note on its way from the engine to its caller, on the event loop: as it comes, or in one piece."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from timbrel_bundle.manifest import heard_seconds
from timbrel_bundle.request_fields import FIELD, NO_MOVES
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.delivery import LARGEST_CHUNK_FRAMES
from timbrel_server.engine.request import ClientKey, Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.errors import InvalidRequestError, NoteCancelledError
from timbrel_server.limits import Quota
from timbrel_server.rpc.call_context import current_facts
from timbrel_server.served_bundles.codec_decoding import AudioStream
from timbrel_server.served_bundles.served_bundle import ServedBundle, frame_rate
from timbrel_server.synthesizer.audio_packing import RAW_FORMATS, AudioPacker
from timbrel_server.synthesizer.convert import FINISH_REASONS, codes_to_pb, held_seconds
from timbrel_server.synthesizer.held_key import HeldKey
from timbrel_server.synthesizer.moving_timbre import MovingTimbre

AUDIO_CHUNK_BYTES = 1 << 20
"""The audio of a reply, at most; gRPC refuses messages above 4 MiB by default."""

LARGEST_NOTE_BYTES = (4 << 20) - 1024
"""gRPC refuses messages above 4 MiB by default; the rest is for what surrounds the note."""

STREAMED_BYTES = 256 << 10
"""What is kept of a note whose samples go out as they come: the codec's state, and a reply."""

BYTES_PER_SAMPLE = 4

MOST_CAUGHT_UP_SECONDS = 0.5
"""A key that is held on is written as late at most: a machine that slept goes on from where it is."""

WriteReply = Callable[[pb.GenerateResponse], Awaitable[None]]


class NoteStream(contextlib.AbstractContextManager["NoteStream"]):
    """The replies to one request for a note, for one reader. Leaving the `with` block gives up what is
    unwritten, and the bundle, which is kept from being freed until then.

    What the model writes of a note is some kilobytes of codes at most, so a slow reader holds nobody up: it
    waits here. Sound is larger by far: it is made once the caller's share has room for it. The frames for
    which a key is held on are made here, as they are sent.
    """

    def __init__(
        self,
        served: ServedBundle,
        request: NoteRequest,
        client: ClientKey,
        audio_bytes: Quota,
        seconds_left: float | None = None,
        *,
        audio_format: pb.AudioFormat = pb.AUDIO_FORMAT_UNSPECIFIED,
        whole: bool = False,
    ) -> None:
        """
        Args:
            client: whose turn it takes while it waits.
            audio_bytes: of sound, where it is asked for: this note's part is held from its slot on until the
                `with` block ends.
            seconds_left: until its caller gives up; None where that is open.
            audio_format: unspecified: replies hold codes.
            whole: whether it is to be had by `whole`: codes come from the engine in one delivery, and sound
                is decoded while the note goes on being written.

        Raises:
            InvalidRequestError: the key is held on for longer than there is room for the sound in one piece.
            OverloadedError: the queue is full, or the note cannot be written in time.
            UnavailableError: the engine has stopped, or has not started.
        """
        in_pieces = audio_format in RAW_FORMATS and not whole
        if request.held_on_frames and audio_format != pb.AUDIO_FORMAT_UNSPECIFIED and not in_pieces:
            check_room(_sound_size(request, served.manifest), audio_bytes, "audio")
        self._served = served
        self._engine = served.require_engine()
        self._audio_format = audio_format
        self._audio_bytes = audio_bytes
        self._whole = whole
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        in_one_piece = whole and audio_format == pb.AUDIO_FORMAT_UNSPECIFIED
        self._handle = RequestHandle(request, self._deliveries.put_nowait, client, whole=in_one_piece)
        self._moving = (
            MovingTimbre(self._engine, served.manifest.codec, request, client)
            if served.manifest.codec.moves
            else None
        )
        self._bends = {True: 0.0, False: 0.0}  # of all notes, and of this one
        self._n_held_on = 0  # frames for which the key has been held on
        self._is_let_go = False  # by the caller
        self._ended = False
        self._n_frames = 0  # that have been passed on
        self._waiting: Delivery | None = None  # taken from the queue before its turn
        self._wait_for_room: asyncio.Timeout | None = None
        self._facts = current_facts()
        with contextlib.ExitStack() as until_closed:
            until_closed.enter_context(served.in_hand())
            self._engine.accept(self._handle, seconds_left)
            self._until_closed = until_closed.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Does what leaving the `with` block does. Harmless where it has been done."""
        if not self._ended:
            self._ended = True
            self._engine.cancel(self._handle)
        if self._moving is not None:
            self._moving.close()
        self._until_closed.close()

    def release(self) -> None:
        """The key goes up. Harmless where it is up, or where the note has ended."""
        self._is_let_go = True
        self._engine.release(self._handle)

    def bend(self, cents: float, *, of_all: bool = False) -> None:
        """The frames decoded from now on sound so far from their pitch, on top of the other bend.

        Harmless where the note is sent as codes, or the codec does not bend.
        """
        self._bends[of_all] = cents

    def move(self, timbre: tuple[float, float]) -> None:
        """The note takes on the timbre of this point, from the next frame on.

        Raises:
            InvalidRequestError: notes of this bundle keep their timbre.
            OverloadedError: the engine has no room for it.
        """
        if self._moving is None:
            raise InvalidRequestError([("move", NO_MOVES)])
        self._moving.move(timbre)

    @property
    def can_bend(self) -> bool:
        """Whether `bend` does something."""
        return self._audio_format != pb.AUDIO_FORMAT_UNSPECIFIED and self._served.manifest.codec.bends

    @property
    def _bend(self) -> float:
        """The cents of what is decoded now."""
        low, high = FIELD["cents"].range(self._served.manifest.ranges)
        return min(max(sum(self._bends.values()), low), high) if self.can_bend else 0.0

    @property
    def _says_bend(self) -> bool:
        """Whether replies say how far their samples are bent."""
        return self._handle.request.is_live and self.can_bend and self._audio_format in RAW_FORMATS

    def cancel(self) -> None:
        """Ends the note at once: its reader gets NoteCancelledError, and none of what still waits for it."""
        self._engine.cancel(self._handle)
        while not self._deliveries.empty():
            self._deliveries.get_nowait()
        self._deliveries.put_nowait(Delivery(error=NoteCancelledError("the note was cancelled")))
        if self._wait_for_room is not None and not self._wait_for_room.expired():
            self._wait_for_room.reschedule(asyncio.get_running_loop().time())

    async def send(self, write: WriteReply) -> None:
        """Sends the note as it comes, with the header in the first reply and the finish reason in the last.

        Raises:
            UnavailableError: the engine ends before the note does.
            NoteCancelledError: after `cancel`.
        """
        manifest = self._served.manifest
        is_first = True
        stream: AudioStream | None = None
        packer = AudioPacker(self._audio_format, manifest.codec.sample_rate)
        async for delivery in self._passages():
            if self._moving is not None:
                delivery = await self._moving.pass_on(delivery)
            if self._facts is not None:
                self._facts.count(self._handle, delivery, first=self._n_frames == 0)
            self._n_frames += len(delivery.frames)
            replies: Iterable[pb.GenerateResponse]
            if self._audio_format == pb.AUDIO_FORMAT_UNSPECIFIED:
                replies = (_codes_reply(delivery, manifest.codec.n_codebooks),)
            else:
                stream = stream or await self._audio_stream()
                bend = self._bend
                audio = await _decode(delivery, stream, packer, bend)
                replies = _audio_replies(audio, delivery, bend if self._says_bend else None)
            for reply in replies:
                if is_first:
                    reply.header.CopyFrom(_header(self._handle.request, manifest))
                    is_first = False
                held_frames = self._handle.held_frames + self._n_held_on
                if reply.finish_reason or self._n_frames > held_frames:
                    reply.held_seconds = held_seconds(held_frames, manifest)
                if reply.finish_reason:
                    was_down = self._handle.request.is_live and not self._is_let_go
                    reply.let_go = was_down and self._n_frames > held_frames
                await write(reply)

    async def _audio_stream(self) -> AudioStream:
        """Waits for room for the sound. A note without a slot holds none, since others would wait for it."""
        account, request = self._handle.client.caller, self._handle.request
        amount = _sound_size(request, self._served.manifest)
        if self._audio_format in RAW_FORMATS and not self._whole:
            amount = min(amount, STREAMED_BYTES)
        try:
            async with asyncio.timeout(None) as self._wait_for_room:
                self._until_closed.enter_context(await self._audio_bytes.wait(account, amount))
        except TimeoutError:  # by `cancel`
            await self._next()  # raises what it left
        finally:
            self._wait_for_room = None
        stream = self._served.decoding.stream(account, request.seed, request.cents)
        return self._until_closed.enter_context(stream)

    async def whole(self, whole: pb.GenerateResponse) -> None:
        """Writes one reply that says what all that `send` would send say together; raises the same.

        Args:
            whole: an empty one.

        Raises:
            InvalidRequestError: it is too long for one message.
        """
        codes: list[bytes] = []
        audio: list[bytes] = []
        n_frames = n_bytes = 0

        async def gather(reply: pb.GenerateResponse) -> None:
            nonlocal n_frames, n_bytes
            n_bytes += reply.ByteSize()
            _check_message(n_bytes)
            codes.append(reply.codes.data)
            audio.append(reply.audio)
            n_frames += reply.codes.n_frames
            reply.ClearField("audio")  # a message keeps all that it has ever held
            if reply.HasField("codes"):
                reply.codes.ClearField("data")
            whole.MergeFrom(reply)

        await self.send(gather)
        whole.audio = b"".join(audio)
        if whole.HasField("codes"):
            whole.codes.data = b"".join(codes)
            whole.codes.n_frames = n_frames
        _check_message(whole.ByteSize())

    async def _passages(self) -> AsyncIterator[Delivery]:
        """Yields the note as the engine delivers it, and amid it the frames for which its key is held on."""
        request, delivery = self._handle.request, Delivery()
        key = HeldKey(self._served.manifest.codec) if request.held_on_frames else None
        n_left = request.held_frames  # until the key is held on
        while delivery.finish is None:
            delivery = await self._next()
            if key is not None:
                before, after = delivery.frames[:n_left], delivery.frames[n_left:]
                n_left -= len(before)
                key.hear(before)
                if n_left == 0:
                    yield Delivery(before)
                    if self._handle.held_frames == request.held_frames:
                        held_on = self._held_on_live if request.is_live else self._held_on
                        async for delivery_between in held_on(key.frames()):
                            yield delivery_between
                    key, delivery = None, Delivery(after, delivery.finish)
            if delivery.frames or delivery.finish is not None:
                yield delivery

    async def _held_on(self, frames: Iterator[Frame]) -> AsyncIterator[Delivery]:
        """Yields as many frames as the key is to be held on for, as fast as they are taken."""
        n_left = self._handle.request.held_on_frames
        while n_left:
            chunk = list(itertools.islice(frames, min(n_left, LARGEST_CHUNK_FRAMES)))
            n_left -= len(chunk)
            self._n_held_on += len(chunk)
            yield Delivery(chunk)
            await asyncio.sleep(0)  # others have their turn

    async def _held_on_live(self, frames: Iterator[Frame]) -> AsyncIterator[Delivery]:
        """Yields a frame at a time, each as far ahead of real time as the note asks for, until the key is up
        and the model goes on with the note."""
        handle, clock = self._handle, asyncio.get_running_loop()
        lead, rate = handle.request.frames_ahead or 0, frame_rate(self._served.manifest)
        begun = handle.submitted + (handle.waited_seconds or 0.0)
        due = begun + (handle.request.held_frames - lead + 1) / rate
        while not handle.is_released and self._n_held_on < handle.request.held_on_frames:
            due = max(due, clock.time() - MOST_CAUGHT_UP_SECONDS)
            if await self._something_comes_before(due):
                return
            self._n_held_on += 1
            yield Delivery([next(frames)])
            due += 1 / rate
        self._engine.release(handle)

    async def _something_comes_before(self, when: float) -> bool:
        try:
            async with asyncio.timeout_at(when):
                self._waiting = await self._deliveries.get()
        except TimeoutError:
            return False
        return True

    async def _next(self) -> Delivery:
        delivery = self._waiting or await self._deliveries.get()
        self._waiting = None
        if delivery.error is not None:
            raise delivery.error
        self._ended = self._ended or delivery.finish is not None  # so that nothing is left to give up
        return delivery


def sound_size(held_frames: int, manifest: pb.Manifest) -> int:
    """Estimates the bytes of a note's sound: with a second for its release."""
    codec = manifest.codec
    return math.ceil((heard_seconds(held_frames, codec) + 1) * codec.sample_rate) * BYTES_PER_SAMPLE


def check_room(n_bytes: int, audio_bytes: Quota, field: str) -> None:
    """Raises InvalidRequestError where so much sound in one piece is more than a caller may ever have."""
    if n_bytes > audio_bytes.most_each:
        allowed = f"{audio_bytes.most_each} are allowed ({audio_bytes.name}, caller_share)"
        hint = "ask for codes, for raw samples as they come, or for fewer seconds"
        raise InvalidRequestError([(field, f"takes about {n_bytes} bytes in one piece; {allowed}: {hint}")])


def _check_message(n_bytes: int) -> None:
    """Raises InvalidRequestError where so many bytes do not fit in one message."""
    if n_bytes > LARGEST_NOTE_BYTES:
        hint = "ask for codes, for another format, or for this note by Generate"
        raise InvalidRequestError([("audio", f"{n_bytes} bytes are too many for one message; {hint}")])


def _sound_size(request: NoteRequest, manifest: pb.Manifest) -> int:
    return sound_size(request.held_frames + request.held_on_frames, manifest)


async def _decode(delivery: Delivery, stream: AudioStream, packer: AudioPacker, bend: float) -> bytes:
    last = delivery.finish is not None
    audio = await stream.decode(delivery.frames, last, bend)
    # A file of some seconds takes its time, a few samples do not.
    return await asyncio.to_thread(packer.add, audio, last) if last else packer.add(audio, last)


def _audio_replies(data: bytes, delivery: Delivery, bend: float | None) -> Iterator[pb.GenerateResponse]:
    for start in range(0, len(data), AUDIO_CHUNK_BYTES):
        yield pb.GenerateResponse(audio=data[start : start + AUDIO_CHUNK_BYTES], cents=bend)
    if delivery.finish is not None:
        yield pb.GenerateResponse(finish_reason=FINISH_REASONS[delivery.finish])


def _codes_reply(delivery: Delivery, n_codebooks: int) -> pb.GenerateResponse:
    reply = pb.GenerateResponse()
    if delivery.finish is not None:
        reply.finish_reason = FINISH_REASONS[delivery.finish]
    if delivery.frames:
        reply.codes.CopyFrom(codes_to_pb(delivery.frames, n_codebooks))
    return reply


def _header(request: NoteRequest, manifest: pb.Manifest) -> pb.GenerateHeader:
    return pb.GenerateHeader(
        seed=request.seed,
        bundle_hash=manifest.bundle_hash,
        codec_id=manifest.codec.id,
        sample_rate=manifest.codec.sample_rate,
    )
