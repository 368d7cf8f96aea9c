"""The blocking client."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import closing
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from timbrel.aio.client import N_NEAREST, AsyncClient, OnError, check_many, size_of
from timbrel.core.location import Location
from timbrel.core.model import Model
from timbrel.core.reply import Audio
from timbrel.core.request import NoteRequest, Path, Timbre
from timbrel.core.timbre import Instrument
from timbrel.errors import CancelledError, TimbrelError
from timbrel.note import Note
from timbrel.player import Player
from timbrel.progress import bar
from timbrel.settings import DEFAULT_TIMEOUT_SECONDS as DEFAULT_TIMEOUT_SECONDS
from timbrel.settings import Security
from timbrel.threads import ThreadedIterator, loop_thread
from timbrel_bundle.codec import PerFrame
from timbrel_bundle.request_fields import Cents

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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
            no bound; the default grows by as much as a whole note is held. `stream`, `generate_many` and each
            note of `play` may stand still for so long; a player itself lives for as long as it is open.
        bundle: start a private server with the bundle in this folder, whatever TIMBREL_SERVER says. Private
            servers otherwise serve TIMBREL_BUNDLE, else the bundle that ships.
        progress: show a bar on standard error while files are fetched.
        security: TLS, and the certificate to show; by default what TIMBREL_CA, TIMBREL_CERT, TIMBREL_KEY and
            TIMBREL_INSECURE say. A token goes unencrypted to no other machine unless it is told to.

    Every method raises subclasses of TimbrelError, drawn in timbrel.errors, and none of gRPC's own errors;
    RuntimeError where the client is closed, or was made by the parent of a forked process; OSError where the
    folder that keeps the codec (TIMBREL_CACHE) cannot be written.
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
        self._client = AsyncClient(
            server, token, timeout, bundle=bundle, progress=progress, security=security
        )
        self._connection = self._client._connection

    def __enter__(self) -> Self:
        self._run(self._connection.open)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and the private server if there is one. Notes at hand can still be decoded.

        >>> client = timbrel.Client()
        >>> note = client.generate("Violin", seconds=0.5, seed=1)
        >>> client.close()
        >>> len(note.audio) == round(note.duration * note.sample_rate)
        True
        """
        if self._connection.guard.is_at_home:  # else all of it is the parent's
            try:
                loop_thread().run(self._connection.close)
            except CancelledError:  # the program is ending, and its loop has ended before
                self._connection.close_server()

    def generate(
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
        """Renders one note.

            >>> note = client.generate("Violin", pitch=67, seconds=0.5, seed=1)
            >>> note.pitch, note.seed, note.audio.dtype
            (67, 1, dtype('float32'))
            >>> client.generate([(0, "Violin"), (0.5, "Flute")], seconds=1, seed=1).path[1][0]
            0.5

        Args:
            timbre: a point (x, y) of the unit disc, or the name of an instrument of the timbre map; or where
                the timbre goes while the note sounds: (seconds, timbre), the one sound becoming the other.
            pitch: MIDI note number, 60 = C4; `model().pitch_range` bounds it. What lies between: `cents`.
            velocity: MIDI velocity, within `model().velocity_range` (1..127 at most).
            seconds: how long the key is held; the release follows. `model().seconds_range` bounds it.
            seed: the same request with the same seed gives the same codes. None: one is drawn here, before
                anything is sent, and the note's `seed` tells which.
            cents: how far from its pitch it sounds, -2400..2400: a number, or points (seconds, cents) with
                lines between them. The codes stay what they are.
            temperature: 0 always takes the most likely code. None: the server's default, as for the next two.
            top_k: draw from the k most likely codes only.
            top_p: draw from the most likely codes that make up this probability only.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            MissingExtraError: no ONNX runtime is installed to decode with (raised by `Note.audio`).
        """
        note = NoteRequest(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p, cents)
        return self._run(self._client._generate, note)

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
        read = requests if isinstance(requests, list | tuple) else ThreadedIterator(iter(requests))
        return self._generate_many(read, progress, size_of(requests), ordered, on_error, max_in_flight)

    def decode(
        self, codes: npt.NDArray[np.uint16], seed: int = 0, cents: Cents = 0.0, level_db: PerFrame = 0.0
    ) -> npt.NDArray[np.float32]:
        """Turns a note's codes into its sound: what `Note.audio` does, for codes that were kept.

            >>> note = client.generate("Violin", seconds=0.5, seed=1)
            >>> np.array_equal(client.decode(note.codes, note.seed), note.audio)
            True

        Args:
            codes: [frames, codebooks], written by the bundle that is served.
            seed: the note's; decides its noise and where its waves begin, so that no two notes sound as one.
            cents: as of `generate`.
            level_db: a gain, of 120 dB at most: for the whole note or a number a frame, gliding.

        Returns:
            Audio [samples] at `model().sample_rate`.

        Raises:
            MissingExtraError: no ONNX runtime is installed.
            InvalidRequestError: the bend is out of range, or the codec does not bend.
            ValueError: codes or levels have another shape or type, or one is out of range.
        """
        return self._run(self._connection.decoder)(codes, seed, cents, level_db)

    def stream(
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
    ) -> Generator[Audio, None, None]:
        """Renders one note and yields its sound as it comes: float32 [samples] at `model().sample_rate`.

            >>> chunks = list(client.stream("Violin", 60, seconds=0.5, seed=1))
            >>> note = client.generate("Violin", 60, seconds=0.5, seed=1)
            >>> np.allclose(np.concatenate(chunks), note.audio, atol=1e-4)
            True

        The first chunk is there as soon as the first frame is; joined, the chunks are the note's `audio`,
        within 1e-4. Until then an overloaded or absent server is asked again; later nothing is, and the
        client's `timeout` bounds each wait for the server, however long the listening takes. Who stops
        iterating early gives the note up, and the server writes no more of it.

        Arguments are those of `generate`; so are the errors, which iterating raises too.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        note = NoteRequest(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p, cents)
        return loop_thread().iterate(self._run(self._client._open_stream, note))

    def play(self, lead_seconds: float | None = None) -> Player:
        """Opens an instrument to be played live: keys go down and up while notes sound.

            >>> with client.play() as player:
            ...     note = player.note_on("Violin", 60)
            ...     beginning = next(note)
            ...     note.off()
            ...     rest = list(note)

        Args:
            lead_seconds: how far ahead of real time the server may write a note whose key is down: what was
                written and read can no longer be released. 0.02 to 60; None: the server's default, 0.15.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        return Player(self._run, self._client.play(lead_seconds))

    def locate(
        self,
        audio: npt.NDArray[Any],
        sample_rate: int,
        *,
        n_nearest: int = N_NEAREST,
    ) -> Location:
        """Says where on the timbre map a recording of one note lies, and of which instruments it may be.

            >>> note = client.generate("Violin", seconds=1.0, seed=1)
            >>> location = client.locate(note.audio, note.sample_rate, n_nearest=2)
            >>> len(location.timbre), len(location.nearest)
            (2, 2)

        Args:
            audio: [samples] or [samples, channels], at any level, with or without silence before and after.
                What lies beyond the longest note that the bundle's model writes is not heard.
            sample_rate: its samples per second, 8000 to 768000.
            n_nearest: how many instruments to name, the likeliest first.

        Raises:
            InvalidRequestError: a field is out of range, or the audio is silent, too short, not finite or of
                another shape; nothing was sent.
        """
        return self._run(self._client.locate, audio, sample_rate, n_nearest=n_nearest)

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
        return self._run(self._client.point, timbre)

    def model(self) -> Model:
        """Describes what the server serves, and what runs it. Asked once and then remembered.

        >>> model = client.model()
        >>> model.sample_rate > 0, model.n_codebooks > 0, model.precision
        (True, True, 'fp32')
        """
        return self._run(self._client.model)

    def timbre_map(self) -> tuple[Instrument, ...]:
        """The named points of the timbre map. Asked once and then remembered.

        >>> [instrument.family for instrument in client.timbre_map() if instrument.name == "Violin"]
        ['Strings']
        """
        return self._run(self._client.timbre_map)

    def instruments(self) -> tuple[str, ...]:
        """The names that `generate` takes for a timbre.

        >>> "Violin" in client.instruments()
        True
        """
        return self._run(self._client.instruments)

    def prepare(self) -> None:
        """Does now what the first note would otherwise wait for: asks for the model and the timbre map, and
        fetches and loads the codec.

        >>> client.prepare()
        """
        self._run(self._client.prepare)

    def _run(
        self,
        ask: Callable[_Arguments, Coroutine[Any, Any, _Result]],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Runs a method of the asynchronous client in the loop of all blocking ones."""
        self._connection.guard.check()
        return loop_thread().run(ask, *args, **kwargs)

    def _generate_many(
        self,
        requests: Sequence[NoteRequest] | ThreadedIterator[NoteRequest],
        progress: bool,
        n_requests: int | None,
        *options: Any,
    ) -> Generator[Any, None, None]:
        self._connection.guard.check()
        notes = loop_thread().iterate(self._client._generate_many(requests, False, *options))
        with closing(notes), bar("notes", n_requests, "note", shown=progress) as shown:
            for note in notes:
                shown.update(1)
                yield note
        if isinstance(requests, ThreadedIterator) and requests.failure is not None:
            raise requests.failure
