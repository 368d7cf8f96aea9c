"""An instrument played live: keys go down and up while notes sound."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from timbrel.audio.stream import Audio, decode_as_it_comes
from timbrel.core.faults import error_from_status
from timbrel.core.reply import NoteAssembler
from timbrel.decoder import Decoder
from timbrel.errors import TimbrelError, UnavailableError
from timbrel.transport import PlayCall
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MakeRequest = Callable[..., pb.GenerateRequest]
"""Takes the arguments of `Client.generate`."""


class PlayedNote:
    """A note that sounds: an iterator over its audio, float32 [samples], as it comes, until it has died away.

        >>> with client.play() as player:
        ...     note = player.note_on("Violin", 60, seed=1)
        ...     beginning = next(note)
        ...     note.off()
        ...     rest = list(note)
        >>> note.seed, note.held_seconds > 0.0
        (1, True)

    One thread reads it; any may let go of its key. Reading raises what `Client.generate` raises, and
    CancelledError after `cancel`.
    """

    def __init__(
        self, note_id: int, send: Callable[[pb.PlayRequest], None], manifest: pb.Manifest, decoder: Decoder
    ) -> None:
        """Use `Player.note_on`."""
        self._id = note_id
        self._send = send
        self._replies: queue.SimpleQueue[pb.GenerateResponse | TimbrelError] = queue.SimpleQueue()
        self._audio = decode_as_it_comes(self._read(), NoteAssembler(manifest), decoder.stream())
        self.seed: int | None = None
        """The seed in use; known with the first audio."""
        self.held_seconds: float | None = None
        """How long the key was held, in seconds; known once the note has ended. `Client.generate` for so many
        with the same seed gives the same codes."""

    def __iter__(self) -> Iterator[Audio]:
        return self

    def __next__(self) -> Audio:
        return next(self._audio)

    def off(self) -> None:
        """The key goes up; the release follows. Harmless where it is up, or where the note has ended."""
        self._send(pb.PlayRequest(id=self._id, note_off=pb.NoteOff()))

    def cancel(self) -> None:
        """Ends the note at once. Harmless where it has ended."""
        self._send(pb.PlayRequest(id=self._id, cancel=pb.NoteCancel()))

    def _take(self, reply: pb.GenerateResponse | TimbrelError) -> None:
        """The player's side of it: what comes next."""
        self._replies.put(reply)

    def _read(self) -> Iterator[pb.GenerateResponse]:
        while True:
            reply = self._replies.get()
            if isinstance(reply, TimbrelError):
                raise reply
            if reply.HasField("header"):
                self.seed = reply.header.seed
            yield reply
            if reply.finish_reason:
                self.held_seconds = reply.held_seconds
                return


class Player:
    """One stream of notes to a server, made by `Client.play`. Threads may share it.

        >>> with client.play() as player:
        ...     chord = [player.note_on("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        >>> [sum(len(chunk) for chunk in note) > 0 for note in chord]
        [True, True, True]

    Leaving the `with` block lets go of every key and waits until the server has written what still sounds,
    which can be read afterwards; after an exception it ends every note at once.
    """

    def __init__(
        self,
        open_call: Callable[[Iterator[pb.PlayRequest]], PlayCall],
        make_request: MakeRequest,
        manifest: pb.Manifest,
        decoder: Decoder,
        lead_seconds: float | None,
    ) -> None:
        """Use `Client.play`."""
        self._make_request = make_request
        self._manifest = manifest
        self._decoder = decoder
        self._lead_seconds = lead_seconds
        self._requests: queue.SimpleQueue[pb.PlayRequest | None] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()  # guards the next two
        self._live: dict[int, PlayedNote] = {}
        self._end: TimbrelError | None = None  # why no note can be played any more
        self._call = open_call(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._listen, name="timbrel-player", daemon=True)
        self._reader.start()

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._call.cancel()
        self._requests.put(None)
        self._reader.join()

    def note_on(
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
    ) -> PlayedNote:
        """A key goes down, until the note's `off`, for `seconds` at most; None: the bundle's longest hold.

        The other arguments are those of `Client.generate`.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            TimbrelError: what ended the stream, if it has ended.
        """
        longest = self._manifest.ranges.seconds_max if seconds is None else seconds
        wanted = self._make_request(timbre, pitch, velocity, longest, seed, temperature, top_k, top_p)
        note = PlayedNote(note_id := next(self._ids), self._requests.put, self._manifest, self._decoder)
        with self._lock:
            if self._end is not None:
                raise self._end
            self._live[note_id] = note
        note_on = pb.NoteOn(note=wanted, lead_seconds=self._lead_seconds)
        self._requests.put(pb.PlayRequest(id=note_id, note_on=note_on))
        return note

    def _listen(self) -> None:
        """The reader's thread."""
        end: TimbrelError = UnavailableError("the player is closed")
        try:
            for response in self._call:
                self._hand_out(response)
        except TimbrelError as error:
            end = error
        with self._lock:
            self._end = end
            cut_off = list(self._live.values())
        for note in cut_off:
            note._take(end)

    def _hand_out(self, response: pb.PlayResponse) -> None:
        event = response.WhichOneof("event")
        with self._lock:
            note = self._live.get(response.id)
        if note is None or event == "refusal":  # concerns nobody: every note here has its own id
            return
        if event == "reply":
            note._take(response.reply)
        else:
            error = response.error
            note._take(error_from_status(error.code, error.message, error.SerializeToString()))
        if event == "error" or response.reply.finish_reason:
            with self._lock:
                del self._live[response.id]
