"""The blocking client."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from timbrel.audio.stream import Audio, decode_as_it_comes
from timbrel.batch_run import BatchRun
from timbrel.connection import Connection
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
from timbrel.player import Player
from timbrel.progress import bar
from timbrel.security import Security
from timbrel.settings import DEFAULT_TIMEOUT_SECONDS as DEFAULT_TIMEOUT_SECONDS
from timbrel.settings import ClientSettings
from timbrel.transport import Transport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

N_NEAREST = 5
"""Instruments that `Client.locate` names where it is not told how many."""


class Client:
    """Renders notes through a timbrel server. Threads may share one.

        >>> with timbrel.Client() as client:
        ...     client.generate("Violin", pitch=60, seconds=0.5, seed=1).save("note.wav")
        PosixPath('note.wav')

    Entering the `with` block, or the first call, finds the server: the `server` argument, else the
    environment's TIMBREL_SERVER, else a private one, which is started here and ends with the client.

    Args:
        server: HOST:PORT; without a port, 50051.
        token: what the server asks its callers for; by default TIMBREL_TOKEN, if set.
        timeout: seconds allowed for one call, waiting for an overloaded or absent server included; None for
            no bound. `generate_many` may stand still for so long, and `play` has no bound.
        bundle: start a private server with the bundle in this folder, whatever TIMBREL_SERVER says. Private
            servers otherwise serve TIMBREL_BUNDLE, else the bundle that ships.
        progress: show a bar on standard error while files are fetched.
        security: TLS, and the certificate to show; by default what TIMBREL_CA, TIMBREL_CERT, TIMBREL_KEY and
            TIMBREL_INSECURE say. A token goes unencrypted to no other machine unless it is told to.

    Every method raises subclasses of TimbrelError, drawn in timbrel.errors, and none of gRPC's own errors;
    RuntimeError where the client is closed, or was made by the parent of a forked process.
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

    def __enter__(self) -> Client:
        self._connection.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and the private server if there is one. Notes at hand can still be decoded.

        >>> client = timbrel.Client()
        >>> note = client.generate("Violin", seconds=0.5, seed=1)
        >>> client.close()
        >>> len(note.audio) == round(note.duration * note.sample_rate)
        True
        """
        self._connection.close()

    def generate(
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
        """Renders one note.

            >>> note = client.generate("Violin", pitch=67, seconds=0.5, seed=1)
            >>> note.pitch, note.seed, note.audio.dtype
            (67, 1, dtype('float32'))

        Args:
            timbre: a point (x, y) of the unit disc, or the name of an instrument of the timbre map.
            pitch: MIDI note number, 60 = C4; `model().pitch_range` bounds it.
            velocity: MIDI velocity, 1..127.
            seconds: how long the key is held; the release follows. `model().seconds_range` bounds it.
            seed: the same request with the same seed gives the same codes. None: one is drawn here, before
                anything is sent, and the note's `seed` tells which.
            temperature: 0 always takes the most likely code. None: the server's default, as for the next two.
            top_k: draw from the k most likely codes only.
            top_p: draw from the most likely codes that make up this probability only.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            MissingExtraError: no ONNX runtime is installed to decode with (raised by `Note.audio`).
        """
        request = self._placed(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p).seeded()
        manifest = self._connection.model().manifest
        message = request_to_pb(request, manifest)
        decoder = self._connection.decoder()
        written = self._connection.call(
            lambda transport, timeout: _write(transport, manifest, message, timeout)
        )
        return finished_note(request, written, manifest.codec.sample_rate, decoder)

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest],
        *,
        ordered: Literal[True] = True,
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
        max_in_flight: int | None = None,
    ) -> Generator[Note, None, None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest],
        *,
        ordered: Literal[True] = True,
        progress: bool = False,
        on_error: Literal["return"],
        max_in_flight: int | None = None,
    ) -> Generator[Note | TimbrelError, None, None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest],
        *,
        ordered: Literal[False],
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
        max_in_flight: int | None = None,
    ) -> Generator[tuple[int, Note], None, None]: ...

    @overload
    def generate_many(
        self,
        requests: Iterable[NoteRequest],
        *,
        ordered: Literal[False],
        progress: bool = False,
        on_error: Literal["return"],
        max_in_flight: int | None = None,
    ) -> Generator[tuple[int, Note | TimbrelError], None, None]: ...

    def generate_many(
        self,
        requests: Iterable[NoteRequest],
        *,
        ordered: bool = True,
        progress: bool = False,
        on_error: OnError = "raise",
        max_in_flight: int | None = None,
    ) -> Generator[Any, None, None]:
        """Renders many notes over one stream, several at once, and yields each as soon as it may.

            >>> scale = [timbrel.NoteRequest("Violin", pitch, seconds=0.3, seed=1) for pitch in (60, 62, 64)]
            >>> [note.pitch for note in client.generate_many(scale)]
            [60, 62, 64]

        A stream that breaks is opened again, and what was unanswered is asked for again; since every seed is
        drawn before anything is sent, and a note is handed out once, nothing of it is to be noticed. The
        client's `timeout` bounds how long the server may give no note at all, not the whole. Who stops
        iterating early gives the rest up.

        Args:
            requests: read by another thread, at most twice `max_in_flight` ahead of what was yielded: it may
                be endless. An error that it raises is raised here, after the notes asked for before.
            ordered: yield notes in the order of the requests. False: as they are finished, each as
                (index of its request, note).
            progress: show a bar on standard error.
            on_error: "raise": a note that cannot be had ends the iteration by its error. "return": its
                TimbrelError takes its place, and the others go on.
            max_in_flight: notes asked for and not yet answered at once; None: as many as the server takes.

        Raises:
            InvalidRequestError: an argument or, while iterating, a request is out of range.
            DeadlineExceededError: no note came for as long as the client's `timeout`.
            UnavailableError: the server went away and did not come back in that time.
        """
        check_many(on_error, max_in_flight)
        return self._generate_many(
            iter(requests), size_of(requests), ordered, progress, on_error, max_in_flight
        )

    def decode(self, codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Turns a note's codes into its sound: what `Note.audio` does, for codes that were kept.

            >>> note = client.generate("Violin", seconds=0.5, seed=1)
            >>> np.array_equal(client.decode(note.codes), note.audio)
            True

        Args:
            codes: [frames, codebooks], written by the bundle that is served.

        Returns:
            Audio [samples] at `model().sample_rate`.

        Raises:
            MissingExtraError: no ONNX runtime is installed.
            ValueError: the codes have another shape or type, or one is out of range.
        """
        return self._connection.decoder()(codes)

    def stream(
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
    ) -> Iterator[Audio]:
        """Renders one note and yields its sound as it comes: float32 [samples] at `model().sample_rate`.

            >>> chunks = list(client.stream("Violin", 60, seconds=0.5, seed=1))
            >>> note = client.generate("Violin", 60, seconds=0.5, seed=1)
            >>> np.allclose(np.concatenate(chunks), note.audio, atol=1e-4)
            True

        The first chunk is there as soon as the first frame is; joined, the chunks are the note's `audio`,
        within 1e-4. Until then an overloaded or absent server is asked again; later nothing is. Who stops
        iterating early gives the note up, and the server writes no more of it.

        Arguments are those of `generate`; so are the errors, which iterating raises too.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        message = self._make_message(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p)
        assembler = NoteAssembler(self._connection.model().manifest)
        stream = self._connection.decoder().stream()
        first, replies = self._connection.call(
            lambda transport, timeout: _opened(transport.generate(message, timeout))
        )

        def chunks() -> Iterator[Audio]:
            with contextlib.closing(replies):
                yield from decode_as_it_comes(itertools.chain(first, replies), assembler, stream)

        return chunks()

    def play(self, lead_seconds: float | None = None) -> Player:
        """Opens an instrument to be played live: keys go down and up while notes sound.

            >>> with client.play() as player:
            ...     note = player.note_on("Violin", 60)
            ...     beginning = next(note)
            ...     note.off()
            ...     rest = list(note)

        Args:
            lead_seconds: how far ahead of real time the server may write a note whose key is down: what is
                written can no longer be released. 0.02 to 60; None: the server's default, 0.15.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        decoder = self._connection.decoder()
        decoder.stream()  # loaded now, not with the first note
        manifest = self._connection.model().manifest
        return Player(self._connection.open().play, self._make_message, manifest, decoder, lead_seconds)

    def locate(
        self,
        audio: npt.NDArray[Any],
        sample_rate: int,
        pitch: float | None = None,
        *,
        n_nearest: int = N_NEAREST,
    ) -> Location:
        """Says where on the timbre map a recording of one note lies.

            >>> note = client.generate("Violin", seconds=1.0, seed=1)
            >>> location = client.locate(note.audio, note.sample_rate, n_nearest=2)
            >>> len(location.timbre), len(location.nearest)
            (2, 2)

        Args:
            audio: [samples] or [samples, channels], at any level, with or without silence before and after.
                What lies beyond the length of the bundle's longest note, `model().max_seconds`, is not heard.
            sample_rate: its samples per second, 8000 to 768000.
            pitch: MIDI note number, fractions allowed, where it is known: a hint.
            n_nearest: how many instruments to name, the nearest first.

        Raises:
            InvalidRequestError: a field is out of range, or the audio is silent, too short, not finite or of
                another shape; nothing was sent.
        """
        if n_nearest < 0:
            raise InvalidRequestError.of([FieldViolation("n_nearest", f"must be 0 or more, got {n_nearest}")])
        manifest = self._connection.model().manifest
        request = locate_request(audio, sample_rate, pitch, manifest)
        reply = self._connection.call(lambda transport, timeout: transport.locate(request, timeout))
        return location_from_pb(reply, manifest.bundle_hash, n_nearest)

    def point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        """The point (x, y) of the timbre map of an instrument, whatever the case of its name.

            >>> timbrel.morph(client.point("Violin"), client.point("flute"), 5)[0] == client.point("Violin")
            True
            >>> client.point("Violni")
            Traceback (most recent call last):
            timbrel.errors.InvalidRequestError: timbre: no instrument 'Violni' ...'Violin'...

        Args:
            timbre: an instrument's name; a point is returned as it is.

        Raises:
            InvalidRequestError: there is no such instrument; the message suggests the nearest names.
        """
        return self._connection.point(timbre)

    def model(self) -> Model:
        """What the server serves, and what runs it. Asked once and then remembered.

        >>> model = client.model()
        >>> model.sample_rate > 0, model.n_codebooks > 0, model.precision
        (True, True, 'fp32')
        """
        return model_from_pb(self._connection.model())

    def timbre_map(self) -> tuple[Instrument, ...]:
        """The named points of the timbre map. Asked once and then remembered.

        >>> [instrument.family for instrument in client.timbre_map() if instrument.name == "Violin"]
        ['Strings']
        """
        return tuple(instrument_from_pb(point) for point in self._connection.timbre_map().points)

    def instruments(self) -> tuple[str, ...]:
        """The names that `generate` takes for a timbre.

        >>> "Violin" in client.instruments()
        True
        """
        return tuple(point.instrument for point in self._connection.timbre_map().points)

    def prepare(self) -> None:
        """Does now what the first note would otherwise wait for: asks for the model, fetches the codec.

        >>> client.prepare()
        """
        self._connection.decoder()

    def _placed(
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
        """Raises InvalidRequestError where the timbre is an unknown name."""
        point = self._connection.point(timbre)
        return NoteRequest(point, pitch, velocity, seconds, seed, temperature, top_k, top_p)

    def _make_message(self, *fields: Any) -> pb.GenerateRequest:
        """The arguments are those of `_placed`. Raises InvalidRequestError, naming every bad field."""
        return request_to_pb(self._placed(*fields).seeded(), self._connection.model().manifest)

    def _generate_many(
        self,
        requests: Iterator[NoteRequest],
        n_requests: int | None,
        ordered: bool,
        progress: bool,
        on_error: OnError,
        max_in_flight: int | None,
    ) -> Generator[Any, None, None]:
        connection = self._connection
        model, timbre_map, decoder = connection.model(), connection.timbre_map(), connection.decoder()
        batch = make_batch(model, timbre_map, connection.patience(), max_in_flight, ordered)
        results = BatchRun(connection.open, batch, requests).results()
        sample_rate = model.manifest.codec.sample_rate

        def make_note(request: NoteRequest, written: WrittenNote) -> Note:
            return finished_note(request, written, sample_rate, decoder)

        with contextlib.closing(results), bar("notes", n_requests, "note", shown=progress) as shown:
            for result in results:
                shown.update(1)
                yield handed_out(result, ordered, on_error, make_note)


def _write(
    transport: Transport, manifest: pb.Manifest, message: pb.GenerateRequest, timeout: float | None
) -> WrittenNote:
    assembler = NoteAssembler(manifest)
    for reply in transport.generate(message, timeout):
        assembler.feed(reply)
    return assembler.finish()


def _opened(
    replies: Generator[pb.GenerateResponse, None, None],
) -> tuple[Iterable[pb.GenerateResponse], Generator[pb.GenerateResponse, None, None]]:
    """The replies up to the first codes, waited for, and the rest: until then the call can be made again."""
    first: list[pb.GenerateResponse] = []
    for reply in replies:
        first.append(reply)
        if reply.codes.n_frames or reply.finish_reason:
            break
    return first, replies
