"""The asynchronous client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from timbrel.aio.audio import decode_as_it_comes
from timbrel.aio.batch_run import AsyncBatchRun
from timbrel.aio.connection import AsyncConnection
from timbrel.aio.player import AsyncPlayer
from timbrel.aio.transport import AsyncTransport
from timbrel.audio.stream import Audio
from timbrel.client import N_NEAREST
from timbrel.core.instrument import Instrument, instrument_from_pb
from timbrel.core.location import Location, location_from_pb
from timbrel.core.model import Model, model_from_pb
from timbrel.core.recording import locate_request
from timbrel.core.reply import NoteAssembler, WrittenNote
from timbrel.core.request import NoteRequest, request_to_pb
from timbrel.errors import FieldViolation, InvalidRequestError, TimbrelError
from timbrel.finished_note import finished_note
from timbrel.many import OnError, check_many, handed_out, make_batch, size_of
from timbrel.note import Note
from timbrel.progress import bar
from timbrel.security import Security
from timbrel.settings import DEFAULT_TIMEOUT_SECONDS, ClientSettings
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


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
        self._connection = AsyncConnection(settings, show_progress=progress)

    async def __aenter__(self) -> AsyncClient:
        await self._connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and the private server if there is one. Notes at hand can still be decoded."""
        await self._connection.close()

    async def generate(
        self,
        timbre: tuple[float, float] | str,
        pitch: int = 60,
        velocity: int = 100,
        seconds: float = 2.0,
        seed: int | None = None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Note:
        """Renders one note; see `Client.generate`.

        Where the event loop must not stand still for some milliseconds, decode in a thread:
        `await asyncio.to_thread(lambda: note.audio)`.
        """
        request = await self._placed(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p)
        manifest = (await self._connection.model()).manifest
        message = request_to_pb(request, manifest)
        decoder = await self._connection.decoder()
        written = await self._connection.call(
            lambda transport, timeout: _write(transport, manifest, message, timeout)
        )
        return finished_note(request, written, manifest.codec.sample_rate, decoder)

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
        return self._generate_many(requests, ordered, progress, on_error, max_in_flight)

    async def decode(self, codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Turns a note's codes into its sound, in a thread; see `Client.decode`."""
        return await asyncio.to_thread(await self._connection.decoder(), codes)

    async def stream(
        self,
        timbre: tuple[float, float] | str,
        pitch: int = 60,
        velocity: int = 100,
        seconds: float = 2.0,
        seed: int | None = None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> AsyncIterator[Audio]:
        """Renders one note and yields its sound as it comes: float32 [samples]; see `Client.stream`.

            >>> async def main():
            ...     async with timbrel.AsyncClient() as client:
            ...         return [len(chunk) > 0 async for chunk in client.stream("Violin", seconds=0.3)]
            >>> all(asyncio.run(main()))
            True

        It is opened, and refused where something is wrong, when it is first read.
        """
        request = await self._placed(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p)
        manifest = (await self._connection.model()).manifest
        message = request_to_pb(request, manifest)
        codec = await asyncio.to_thread((await self._connection.decoder()).stream)
        first, replies = await self._connection.call(
            lambda transport, timeout: _opened(transport.generate(message, timeout))
        )
        async with aclosing(replies):
            chunks = decode_as_it_comes(_chained(first, replies), NoteAssembler(manifest), codec)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk

    def play(self, lead_seconds: float | None = None) -> AsyncPlayer:
        """An instrument to be played live, once its `async with` block is entered; see `Client.play`."""
        return AsyncPlayer(self._connection, lead_seconds)

    async def locate(
        self,
        audio: npt.NDArray[Any],
        sample_rate: int,
        pitch: float | None = None,
        *,
        n_nearest: int = N_NEAREST,
    ) -> Location:
        """Says where on the timbre map a recording of one note lies; see `Client.locate`."""
        if n_nearest < 0:
            raise InvalidRequestError.of([FieldViolation("n_nearest", f"must be 0 or more, got {n_nearest}")])
        manifest = (await self._connection.model()).manifest
        request = await asyncio.to_thread(locate_request, audio, sample_rate, pitch, manifest)
        reply = await self._connection.call(lambda transport, timeout: transport.locate(request, timeout))
        return location_from_pb(reply, manifest.bundle_hash, n_nearest)

    async def point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        """The point (x, y) of an instrument; see `Client.point`."""
        return await self._connection.point(timbre)

    async def model(self) -> Model:
        """What the server serves, and what runs it. Asked once and then remembered."""
        return model_from_pb(await self._connection.model())

    async def timbre_map(self) -> tuple[Instrument, ...]:
        """The named points of the timbre map. Asked once and then remembered."""
        return tuple(instrument_from_pb(point) for point in (await self._connection.timbre_map()).points)

    async def instruments(self) -> tuple[str, ...]:
        """The names that `generate` takes for a timbre."""
        return tuple(point.instrument for point in (await self._connection.timbre_map()).points)

    async def prepare(self) -> None:
        """Does now what the first note would otherwise wait for: asks for the model, fetches the codec."""
        await self._connection.decoder()

    async def _placed(
        self,
        timbre: tuple[float, float] | str,
        pitch: int,
        velocity: int,
        seconds: float,
        seed: int | None,
        temperature: float | None,
        top_k: int | None,
        top_p: float | None,
    ) -> NoteRequest:
        """The note at its point, with a seed. Raises InvalidRequestError for an unknown name."""
        point = await self._connection.point(timbre)
        return NoteRequest(point, pitch, velocity, seconds, seed, temperature, top_k, top_p).seeded()

    async def _generate_many(
        self,
        requests: Iterable[NoteRequest] | AsyncIterable[NoteRequest],
        ordered: bool,
        progress: bool,
        on_error: OnError,
        max_in_flight: int | None,
    ) -> AsyncGenerator[Any, None]:
        connection = self._connection
        model = await connection.model()
        timbre_map, decoder = await connection.timbre_map(), await connection.decoder()
        batch = make_batch(model, timbre_map, connection.patience(), max_in_flight, ordered)
        results = AsyncBatchRun(connection.open, batch, requests).results()
        sample_rate = model.manifest.codec.sample_rate

        def make_note(request: NoteRequest, written: WrittenNote) -> Note:
            return finished_note(request, written, sample_rate, decoder)

        async with aclosing(results):
            with bar("notes", size_of(requests), "note", shown=progress) as shown:
                async for result in results:
                    shown.update(1)
                    yield handed_out(result, ordered, on_error, make_note)


async def _write(
    transport: AsyncTransport, manifest: pb.Manifest, message: pb.GenerateRequest, timeout: float | None
) -> WrittenNote:
    assembler = NoteAssembler(manifest)
    async with aclosing(transport.generate(message, timeout)) as replies:
        async for reply in replies:
            assembler.feed(reply)
    return assembler.finish()


async def _opened(
    replies: AsyncGenerator[pb.GenerateResponse, None],
) -> tuple[list[pb.GenerateResponse], AsyncGenerator[pb.GenerateResponse, None]]:
    """The replies up to the first codes, waited for, and the rest: until then the call can be made again."""
    first: list[pb.GenerateResponse] = []
    async for reply in replies:
        first.append(reply)
        if reply.codes.n_frames or reply.finish_reason:
            break
    return first, replies


async def _chained(
    first: Iterable[pb.GenerateResponse], rest: AsyncIterable[pb.GenerateResponse]
) -> AsyncIterator[pb.GenerateResponse]:
    for reply in first:
        yield reply
    async for reply in rest:
        yield reply
