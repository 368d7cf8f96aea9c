"""The asynchronous client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sized
from contextlib import aclosing, suppress
from typing import Any, Literal, Self, cast, overload

import numpy as np
import numpy.typing as npt

from timbrel.aio.batch_run import BatchRun
from timbrel.aio.connection import Connection
from timbrel.aio.player import AsyncPlayer, decode_as_it_comes, within
from timbrel.aio.transport import Transport
from timbrel.core.batch import DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT, Batch
from timbrel.core.location import Location, locate_request, location_from_pb
from timbrel.core.model import Model, model_from_pb
from timbrel.core.reply import Audio, NoteAssembler, ReplyLimit, WrittenNote
from timbrel.core.request import NoteRequest, Path, Timbre
from timbrel.core.timbre import Instrument, instrument_from_pb
from timbrel.decoder import Decoder
from timbrel.errors import (
    DeadlineExceededError,
    MissingExtraError,
    ServerError,
    TimbrelError,
    refusal,
    within_allowed,
)
from timbrel.note import Note
from timbrel.progress import bar
from timbrel.settings import DEFAULT_TIMEOUT_SECONDS, ClientSettings, Security
from timbrel_bundle.codec import PerFrame
from timbrel_bundle.request_fields import Cents, TimbrePath
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

N_NEAREST = 5
"""Instruments that `Client.locate` names where it is not told how many."""

OnError = Literal["raise", "return"]
"""A note that cannot be had ends the iteration, or its error is handed out in its place."""


class AsyncClient:
    """Renders notes through a timbrel server, in an event loop. Tasks of one loop may share it.

        >>> async def main():
        ...     async with timbrel.AsyncClient() as client:
        ...         notes = [client.generate("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        ...         return [note.pitch for note in await asyncio.gather(*notes)]
        >>> asyncio.run(main())
        [60, 64, 67]

    Arguments, environment and errors are those of `timbrel.Client`, and so are the methods: those that ask
    the server are awaited. A task that is cancelled gives its call up, and the server writes no more of it.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        *,
        bundle: str | os.PathLike[str] | None = None,
        progress: bool = False,
        security: Security | None = None,
    ) -> None:
        settings = ClientSettings.resolve(server, token, timeout, bundle, security, os.environ)
        self._connection = Connection(settings, show_progress=progress)

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and the private server if there is one. Notes at hand can still be decoded."""
        await self._connection.close()

    async def generate(
        self,
        timbre: Timbre | Path,
        pitch: int = NoteRequest.pitch,
        velocity: int = NoteRequest.velocity,
        seconds: float = NoteRequest.seconds,
        seed: int | None = None,
        *,
        cents: Cents = 0.0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Note:
        """Renders one note; see `Client.generate`.

        Where the event loop must not stand still for some milliseconds, decode in a thread:
        `await asyncio.to_thread(lambda: note.audio)`.
        """
        note = NoteRequest(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p, cents)
        return await self._generate(note)

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        *,
        ordered: Literal[True] = True,
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
        max_in_flight: int | None = None,
    ) -> AsyncGenerator[Note, None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        *,
        ordered: Literal[True] = True,
        progress: bool = False,
        on_error: Literal["return"],
        max_in_flight: int | None = None,
    ) -> AsyncGenerator[Note | TimbrelError, None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        *,
        ordered: Literal[False],
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
        max_in_flight: int | None = None,
    ) -> AsyncGenerator[tuple[int, Note], None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        *,
        ordered: Literal[False],
        progress: bool = False,
        on_error: Literal["return"],
        max_in_flight: int | None = None,
    ) -> AsyncGenerator[tuple[int, Note | TimbrelError], None]: ...

    def generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        *,
        ordered: bool = True,
        progress: bool = False,
        on_error: OnError = "raise",
        max_in_flight: int | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Renders many notes over one stream, several at once; see `Client.generate_many`.

            >>> async def main():
            ...     scale = [timbrel.NoteRequest("Violin", pitch, seconds=0.3) for pitch in (60, 62, 64)]
            ...     async with timbrel.AsyncClient() as client:
            ...         return [note.pitch async for note in client.generate_many(scale)]
            >>> asyncio.run(main())
            [60, 62, 64]

        Args:
            requests: a plain iterable is read in the event loop and should not make it wait; an asynchronous
                one may take its time.
        """
        check_many(on_error, max_in_flight)
        if not isinstance(requests, Iterable | AsyncIterable):
            raise TypeError(f"requests must be iterable, got {type(requests).__name__}")
        return self._generate_many(requests, progress, ordered, on_error, max_in_flight)

    async def decode(
        self, codes: npt.NDArray[np.uint16], seed: int = 0, cents: Cents = 0.0, level_db: PerFrame = 0.0
    ) -> npt.NDArray[np.float32]:
        """Turns a note's codes into its sound, in a thread; see `Client.decode`."""
        return await asyncio.to_thread(await self._connection.decoder(), codes, seed, cents, level_db)

    async def stream(
        self,
        timbre: Timbre | Path,
        pitch: int = NoteRequest.pitch,
        velocity: int = NoteRequest.velocity,
        seconds: float = NoteRequest.seconds,
        seed: int | None = None,
        *,
        cents: Cents = 0.0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> AsyncGenerator[Audio, None]:
        """Renders one note and yields its sound as it comes: float32 [samples]; see `Client.stream`.

            >>> async def main():
            ...     async with timbrel.AsyncClient() as client:
            ...         return [len(chunk) > 0 async for chunk in client.stream("Violin", seconds=0.3)]
            >>> all(asyncio.run(main()))
            True

        It is opened, and refused where something is wrong, when it is first read.
        """
        note = NoteRequest(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p, cents)
        async with aclosing(await self._open_stream(note)) as chunks:
            async for chunk in chunks:
                yield chunk

    def play(self, lead_seconds: float | None = None) -> AsyncPlayer:
        """An instrument to be played live; see `Client.play`."""
        return AsyncPlayer(self._connection, lead_seconds)

    async def locate(
        self,
        audio: npt.NDArray[Any],
        sample_rate: int,
        *,
        n_nearest: int = N_NEAREST,
    ) -> Location:
        """Says where on the timbre map a recording of one note lies; see `Client.locate`."""
        if n_nearest < 0:
            raise refusal("n_nearest", f"must be 0 or more, got {n_nearest}")
        manifest = (await self._connection.model()).manifest
        request = await asyncio.to_thread(locate_request, audio, sample_rate, manifest)
        reply = await self._connection.call(lambda transport, timeout: transport.locate(request, timeout))
        return location_from_pb(reply, manifest.bundle_hash, n_nearest)

    async def point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        """The point (x, y) of an instrument; see `Client.point`."""
        return await self._connection.point(timbre)

    async def model(self) -> Model:
        """Describes what the server serves, and what runs it. Asked once and then remembered."""
        return model_from_pb(await self._connection.model())

    async def timbre_map(self) -> tuple[Instrument, ...]:
        """The named points of the timbre map. Asked once and then remembered."""
        return tuple(instrument_from_pb(point) for point in (await self._connection.timbre_map()).points)

    async def instruments(self) -> tuple[str, ...]:
        """The names that `generate` takes for a timbre."""
        return tuple(point.instrument for point in (await self._connection.timbre_map()).points)

    async def prepare(self) -> None:
        """Does now what the first note would otherwise wait for; see `Client.prepare`."""
        decoder = await self._connection.decoder()
        await self._connection.timbre_map()
        with suppress(MissingExtraError):  # codes can be had all the same
            await asyncio.to_thread(decoder.load)

    async def _generate(self, note: NoteRequest) -> Note:
        request, message, manifest = await self._connection.placed(note)
        decoder = await self._connection.decoder()
        patience = self._connection.patience()
        patience.expect(message.seconds)

        async def write(transport: Transport, timeout: float | None) -> WrittenNote:
            assembler = NoteAssembler(manifest)
            async with aclosing(transport.generate(message, timeout)) as replies:
                async for reply in replies:
                    assembler.feed(reply)
            return assembler.finish()

        written = await self._connection.call(write, patience)
        return _note_of(request, written, manifest.codec.sample_rate, decoder)

    async def _open_stream(self, note: NoteRequest) -> AsyncGenerator[Audio, None]:
        """The sound of one note, the first codes of which are there.

        Until then the call can be made again, where the server is overloaded or away.
        """
        _, message, manifest = await self._connection.placed(note)
        decoder = await self._connection.decoder()
        codec = await asyncio.to_thread(decoder.stream, message.seed, note.cents)
        first: list[pb.GenerateResponse] = []

        async def open_call(
            transport: Transport, timeout: float | None
        ) -> AsyncGenerator[pb.GenerateResponse, None]:
            first.clear()
            # The call itself has no bound: who listens to the note as it is played takes their time.
            replies, limit = transport.generate(message, None), ReplyLimit(manifest)
            try:
                async with asyncio.timeout(timeout):
                    async for reply in replies:
                        limit.take(reply)
                        first.append(reply)
                        if reply.codes.n_frames or reply.finish_reason:
                            break
            except TimeoutError:
                reason = f"Generate: nothing of the note came{within_allowed(timeout)}"
                raise DeadlineExceededError(reason) from None
            except ServerError:
                await replies.aclose()
                raise
            return replies

        rest, patience_seconds = await self._connection.call(open_call), self._connection.timeout

        async def replies() -> AsyncGenerator[pb.GenerateResponse, None]:
            for reply in first:
                yield reply
            while (later := await within(patience_seconds, anext(rest, None))) is not None:
                yield later

        async def audio() -> AsyncGenerator[Audio, None]:
            async with aclosing(rest):
                decoding = self._connection.decoding
                async for chunk in decode_as_it_comes(replies(), manifest, codec, decoding):
                    yield chunk

        return audio()

    async def _generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        progress: bool,
        ordered: bool,
        on_error: OnError,
        max_in_flight: int | None,
    ) -> AsyncGenerator[Any, None]:
        connection = self._connection
        model, timbre_map = await connection.model(), await connection.timbre_map()
        decoder, sample_rate = await connection.decoder(), model.manifest.codec.sample_rate
        in_flight = max_in_flight or min(model.engine.max_in_flight, MOST_IN_FLIGHT) or DEFAULT_IN_FLIGHT
        batch = Batch(model.manifest, timbre_map, connection.patience(), in_flight, ordered=ordered)
        with bar("notes", size_of(requests), "note", shown=progress) as shown:
            async with aclosing(BatchRun(connection.open, batch, requests).results()) as results:
                async for result in results:
                    shown.update(1)
                    made: Note | TimbrelError
                    if not isinstance(result.outcome, TimbrelError):
                        made = _note_of(result.request, result.outcome, sample_rate, decoder)
                    elif on_error == "return":
                        made = result.outcome
                    else:
                        raise result.outcome
                    yield made if ordered else (result.index, made)


def check_many(on_error: str, max_in_flight: int | None) -> None:
    """Looks at the arguments of `generate_many`. Raises InvalidRequestError: one of them is out of range."""
    if on_error not in ("raise", "return"):
        raise refusal("on_error", f"must be 'raise' or 'return', got {on_error!r}")
    if max_in_flight is not None and max_in_flight < 1:
        raise refusal("max_in_flight", f"must be 1 or more, got {max_in_flight}")


def size_of(requests: object) -> int | None:
    """Counts the requests; None where their number shows only in the end."""
    return len(requests) if isinstance(requests, Sized) else None


def _note_of(request: NoteRequest, written: WrittenNote, sample_rate: int, decoder: Decoder) -> Note:
    """The note that the server wrote for a request that was placed on the map."""
    path = cast(TimbrePath, request.path)
    x, y = path[0][1] if path else cast(tuple[float, float], request.timbre)
    return Note(
        timbre=(float(x), float(y)),
        path=path,
        pitch=int(request.pitch),
        velocity=int(request.velocity),
        seconds=float(request.seconds),
        seed=written.seed,
        truncated=written.truncated,
        codes=written.codes,
        sample_rate=sample_rate,
        cents=request.cents,
        _decode=decoder,
    )
