"""The blocking client."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timbrel.core.address import TOKEN_VARIABLE, find_server
from timbrel.core.instrument import Instrument
from timbrel.core.location import Location
from timbrel.core.manifest import check_manifest
from timbrel.core.model import Model
from timbrel.core.recording import locate_request
from timbrel.core.reply import NoteAssembler, WrittenNote
from timbrel.core.request import NoteRequest
from timbrel.core.retry import RetryPolicy
from timbrel.core.timbre import instrument_point
from timbrel.decoder import CODEC_FILES, Decoder
from timbrel.errors import FieldViolation, InvalidRequestError, OverloadedError, UnavailableError
from timbrel.files import FileCache
from timbrel.note import Note
from timbrel.player import Player
from timbrel.private_server import PrivateServer
from timbrel.security import Security
from timbrel.sound import Audio, decode_as_it_comes
from timbrel.transport import Transport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

DEFAULT_TIMEOUT_SECONDS = 120.0
"""A note takes a second or so; a busy server's queue and a slow processor are given time."""

N_NEAREST = 5
"""Instruments that `Client.locate` names where it is not told how many."""

_Result = TypeVar("_Result")


class Client:
    """Renders notes through a timbrel server. Threads may share one.

        with timbrel.Client() as client:
            client.generate("Violin", pitch=60, seed=1).save("note.wav")

    Entering the `with` block, or the first call, finds the server: the `server` argument, else the
    environment's TIMBREL_SERVER, else a private one, which is started here and ends with the client.

    Args:
        server: HOST:PORT; without a port, 50051.
        token: what the server asks its callers for; by default TIMBREL_TOKEN, if set.
        timeout: seconds allowed for one call, waiting for an overloaded server included; None for no bound.
        bundle: start a private server with the bundle in this folder, whatever TIMBREL_SERVER says. Private
            servers otherwise serve TIMBREL_BUNDLE, else the bundle that ships.
        progress: show a bar on standard error while files are fetched.
        security: TLS, and the certificate to show; by default what TIMBREL_CA, TIMBREL_CERT, TIMBREL_KEY and
            TIMBREL_INSECURE say. A token goes unencrypted to no other machine unless it is told to.

    Every method raises subclasses of TimbrelError, drawn in timbrel.errors, and none of gRPC's own errors.
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
        if timeout is not None and not timeout > 0:
            raise InvalidRequestError.of(
                [FieldViolation("timeout", f"must be above 0 seconds, got {timeout}")]
            )
        if server is not None and bundle is not None:
            raise InvalidRequestError.of([FieldViolation("bundle", f"the server {server} serves its own")])
        self._address = None if bundle is not None else find_server(server, os.environ)
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        self._timeout = timeout
        self._security = security if security is not None else Security.from_environment(os.environ)
        self._bundle = bundle
        self._progress = progress
        self._retry = RetryPolicy()
        # Guards what is made once, at first need: everything below.
        self._lock = threading.RLock()
        self._closed = False
        self._private_server: PrivateServer | None = None
        self._transport: Transport | None = None
        self._model: pb.GetModelResponse | None = None
        self._map: pb.TimbreMap | None = None
        self._decoder: Decoder | None = None

    def __enter__(self) -> Client:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and the private server if there is one. Notes at hand can still be decoded."""
        with self._lock:
            self._closed = True
            if self._transport is not None:
                self._transport.close()
                self._transport = None
            if self._private_server is not None:
                self._private_server.close()
                self._private_server = None

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

        Args:
            timbre: a point (x, y) of the unit disc, or the name of an instrument of the timbre map.
            pitch: MIDI note number, 60 = C4; `model().pitch_range` bounds it.
            velocity: MIDI velocity, 1..127.
            seconds: how long the key is held; the release follows. `model().seconds_range` bounds it.
            seed: the same request with the same seed gives the same codes. None: the server draws one, and
                the note's `seed` tells which.
            temperature: 0 always takes the most likely code. None: the server's default, as for the next two.
            top_k: draw from the k most likely codes only.
            top_p: draw from the most likely codes that make up this probability only.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            MissingExtraError: no ONNX runtime is installed to decode with (raised by `Note.audio`).
        """
        request = self._make_request(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p)
        manifest = self._get_model().manifest
        decoder = self._get_decoder()
        written = self._call(lambda transport, timeout: _write(transport, manifest, request, timeout))
        point = self._point(timbre)
        return Note(
            timbre=(float(point[0]), float(point[1])),
            pitch=int(pitch),
            velocity=int(velocity),
            seconds=float(seconds),
            seed=written.seed,
            truncated=written.truncated,
            codes=written.codes,
            sample_rate=manifest.codec.sample_rate,
            _decode=decoder,
        )

    def decode(self, codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Turns a note's codes into its sound: what `Note.audio` does, for codes that were kept.

        Args:
            codes: [frames, codebooks], written by the bundle that is served.

        Returns:
            Audio [samples] at `model().sample_rate`.

        Raises:
            MissingExtraError: no ONNX runtime is installed.
            ValueError: the codes have another shape or type, or one is out of range.
        """
        return self._get_decoder()(codes)

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

            for chunk in client.stream("Violin", 60):
                loudspeaker.write(chunk)

        The first chunk is there as soon as the first frame is; joined, the chunks are the note's `audio`,
        within 1e-4. Who stops iterating early gives the note up, and the server writes no more of it.

        Arguments are those of `generate`; so are the errors, which iterating raises too.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        request = self._make_request(timbre, pitch, velocity, seconds, seed, temperature, top_k, top_p)
        assembler = NoteAssembler(self._get_model().manifest)
        stream = self._get_decoder().stream()
        first, replies = self._call(lambda transport, timeout: _opened(transport.generate(request, timeout)))

        def chunks() -> Iterator[Audio]:
            with contextlib.closing(replies):
                yield from decode_as_it_comes(itertools.chain(first, replies), assembler, stream)

        return chunks()

    def play(self, lead_seconds: float | None = None) -> Player:
        """Opens an instrument to be played live: keys go down and up while notes sound.

            with client.play() as player:
                note = player.note_on("Violin", 60)
                loudspeaker.write(next(note))
                note.off()
                for chunk in note: loudspeaker.write(chunk)

        Args:
            lead_seconds: how far ahead of real time the server may write a note whose key is down: what is
                written can no longer be released. 0.02 to 60; None: the server's default, 0.15.

        Raises:
            MissingExtraError: no ONNX runtime is installed to decode with.
        """
        decoder = self._get_decoder()
        decoder.stream()  # loaded now, not with the first note
        manifest = self._get_model().manifest
        return Player(self._connect().play, self._make_request, manifest, decoder, lead_seconds)

    def locate(
        self,
        audio: npt.NDArray[Any],
        sample_rate: int,
        pitch: float | None = None,
        *,
        n_nearest: int = N_NEAREST,
    ) -> Location:
        """Says where on the timbre map a recording of one note lies.

            location = client.locate(audio, 44_100)
            client.generate(location.timbre, pitch=48)

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
        manifest = self._get_model().manifest
        request = locate_request(audio, sample_rate, pitch, manifest)
        reply = self._call(lambda transport, timeout: transport.locate(request, timeout))
        return Location.from_pb(reply, manifest.bundle_hash, n_nearest)

    def model(self) -> Model:
        """What the server serves, and what runs it. Asked once and then remembered."""
        return Model.from_pb(self._get_model())

    def timbre_map(self) -> tuple[Instrument, ...]:
        """The named points of the timbre map. Asked once and then remembered."""
        return tuple(Instrument.from_pb(point) for point in self._get_map().points)

    def instruments(self) -> tuple[str, ...]:
        """The names that `generate` takes for a timbre."""
        return tuple(point.instrument for point in self._get_map().points)

    def prepare(self) -> None:
        """Does now what the first note would otherwise wait for: asks for the model, fetches the codec."""
        self._get_decoder()

    def _connect(self) -> Transport:
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            if self._transport is None:
                address, token, security = str(self._address), self._token, self._security
                if self._address is None:
                    security = Security()  # it is on the loopback
                    self._private_server = PrivateServer(self._bundle)
                    address, token = self._private_server.address, self._private_server.token
                self._transport = Transport(address, token, security)
            return self._transport

    def _get_model(self) -> pb.GetModelResponse:
        with self._lock:
            if self._model is None:
                model = self._call(Transport.get_model)
                check_manifest(model.manifest)
                self._model = model
            return self._model

    def _get_map(self) -> pb.TimbreMap:
        with self._lock:
            if self._map is None:
                self._map = self._call(Transport.get_timbre_map)
            return self._map

    def _point(self, timbre: tuple[float, float] | str) -> tuple[float, float]:
        return instrument_point(self._get_map(), timbre) if isinstance(timbre, str) else timbre

    def _make_request(
        self,
        timbre: tuple[float, float] | str,
        pitch: int,
        velocity: int,
        seconds: float,
        seed: int | None,
        temperature: float | None,
        top_k: int | None,
        top_p: float | None,
    ) -> pb.GenerateRequest:
        """Raises InvalidRequestError, naming every field that is out of range."""
        wanted = NoteRequest(self._point(timbre), pitch, velocity, seconds, seed, temperature, top_k, top_p)
        return wanted.to_pb(self._get_model().manifest)

    def _get_decoder(self) -> Decoder:
        """The codec of the bundle, its files fetched; its sessions are made when first used."""
        with self._lock:
            if self._decoder is None:
                transport = self._connect()
                cache = FileCache(
                    self._get_model().manifest,
                    lambda name, offset: transport.get_file(name, offset, self._timeout),
                    show_progress=self._progress,
                )
                self._decoder = Decoder(cache.require(CODEC_FILES))
            return self._decoder

    def _call(self, action: Callable[[Transport, float | None], _Result]) -> _Result:
        """Runs one call within the time allowed, again where the server is overloaded or not there.

        Our own, once gone, does not come back.
        """
        transport = self._connect()
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        attempt = 1
        while True:
            try:
                return action(transport, _remaining(deadline))
            except (OverloadedError, UnavailableError) as error:
                if isinstance(error, UnavailableError) and self._private_server is not None:
                    raise
                delay = self._retry.delay(attempt, error, _remaining(deadline))
                if delay is None:
                    raise
            time.sleep(delay)
            attempt += 1


def _remaining(deadline: float | None) -> float | None:
    """Seconds until the deadline, never below 0; None where there is none."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _write(
    transport: Transport, manifest: pb.Manifest, request: pb.GenerateRequest, timeout: float | None
) -> WrittenNote:
    assembler = NoteAssembler(manifest)
    for reply in transport.generate(request, timeout):
        assembler.feed(reply)
    return assembler.finish()


def _opened(
    replies: Generator[pb.GenerateResponse, None, None],
) -> tuple[Iterable[pb.GenerateResponse], Generator[pb.GenerateResponse, None, None]]:
    """The first reply, waited for, and the rest: an overloaded server says so before it."""
    return list(itertools.islice(replies, 1)), replies
