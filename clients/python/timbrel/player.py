"""An instrument played live: keys go down and up while notes sound."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

from timbrel.aio.player import AsyncPlayer, Heard, NoteInbox, Wheel, silence
from timbrel.core.reply import Audio, StreamDecoder
from timbrel.core.request import NoteRequest, Path, Timbre
from timbrel.errors import TimbrelError
from timbrel.threads import loop_thread
from timbrel_bundle.request_fields import Cents

Run = Callable[..., Any]
"""Runs an asynchronous function, with its arguments, to its end."""


class PlayedNote:
    """A note that sounds: an iterator over its audio, float32 [samples], as it comes, until it has died away.

        >>> with client.play() as player:
        ...     note = player.note_on("Violin", 60, seed=1)
        ...     beginning = next(note)
        ...     note.off()
        ...     rest = list(note)
        >>> note.seed, note.held_seconds > 0.0
        (1, True)

    One thread reads it; any may let go of its key. Reading raises what `Client.generate` raises,
    DeadlineExceededError where nothing comes for as long as the client allows a call, and CancelledError
    after `cancel`, or where nobody read it until as much had come as of the longest note (ten minutes).

    Attributes:
        seed: the seed in use; known with the first audio.
        held_seconds: how long the key was held, in seconds, as the server wrote the note; known once that has
            ended. `Client.generate` for so many with the same seed gives the same codes, but for those that
            `off` left out, and unless `move` gave it another timbre.
        let_go: whether the server let go of the key, and not `off`: it had been held for as long as it may
            be, or every slot was taken, and somebody waited. Known once the note has ended.
    """

    def __init__(
        self,
        player: Player,
        listener: NoteInbox,
        replies: queue.SimpleQueue[Heard],
        decoder: StreamDecoder,
    ) -> None:
        """Use `Player.note_on`."""
        self._run, self._player = player._run, player._player
        self._wheel = Wheel(self._player._wheel)
        self._stream = self._player._open_stream
        self._patience = self._player._connection.timeout
        self._listener = listener
        self._replies = replies
        self._audio = self._decoded(decoder)
        self.seed: int | None = None
        self.held_seconds: float | None = None
        self.let_go: bool | None = None

    def __iter__(self) -> Iterator[Audio]:
        return self

    def __next__(self) -> Audio:
        audio = next(self._audio)
        self._listener.ahead.heard(time.monotonic())
        return audio

    def off(self) -> None:
        """The key goes up; the release follows. Harmless where it is up, or where the note has ended.

        What the server had written ahead is left out where it has not been read: who reads a note as it is
        played hears the release within a twentieth of a second or so.
        """
        self._listener.ahead.key_up(time.monotonic())
        loop_thread().call_soon(lambda: self._stream.note_off(self._listener))

    def cancel(self) -> None:
        """Ends the note at once. Harmless where it has ended."""
        loop_thread().call_soon(lambda: self._stream.cancel(self._listener))

    def bend(self, cents: float) -> None:
        """Bends the note, on top of its own `cents` and the player's bend: heard with the next frame read.

            >>> with client.play() as player:
            ...     note = player.note_on("Violin", 60, seconds=0.5)
            ...     beginning = next(note)
            ...     note.bend(50)  # a quarter-tone up, from here on
            ...     rest = list(note)

        Args:
            cents: -2400 to 2400, until the next bend; the sum of all is held within that, too.

        Raises:
            InvalidRequestError: it is out of range, or the bundle's codec does not bend.
        """
        self._wheel.turn(cents)

    def move(self, timbre: Timbre) -> None:
        """The note takes on another timbre while it sounds, as if it had had it all along: within about a
        tenth of a second, from the next frame that the server writes (see `lead_seconds` of `Client.play`).

            >>> with client.play() as player:
            ...     note = player.note_on("Violin", 60, seconds=0.5)
            ...     beginning = next(note)
            ...     note.move("Flute")  # from here on
            ...     rest = list(note)

        Points may come as fast as a pointer is dragged; they end the note's path. What the server has no room
        for, it leaves out.

        Raises:
            InvalidRequestError: this is no instrument and no point of the disc, or the bundle's notes keep
                their timbre.
        """
        point = self._run(self._player._point_to_move_to, timbre)
        loop_thread().call_soon(lambda: self._stream.move(self._listener, point))

    def _decoded(self, decoder: StreamDecoder) -> Iterator[Audio]:
        finished = False
        while not finished:
            try:
                reply = self._replies.get(timeout=self._patience)
            except queue.Empty:
                self.cancel()
                raise silence(self._patience) from None
            if isinstance(reply, TimbrelError):
                raise reply
            self._listener.was_read(reply)
            if reply.HasField("header"):
                self.seed = reply.header.seed
            for part in self._listener.ahead.kept(decoder.take(reply)):
                if len(audio := decoder.decode(part, self._wheel.cents)):
                    yield audio
            if finished := bool(reply.finish_reason):
                self.held_seconds, self.let_go = reply.held_seconds, reply.let_go
        if len(rest := decoder.finish()):
            yield rest


class Player:
    """One stream of notes to a server, made by `Client.play`. Threads may share it.

        >>> with client.play() as player:
        ...     chord = [player.note_on("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        >>> [sum(len(chunk) for chunk in note) > 0 for note in chord]
        [True, True, True]

    Leaving the `with` block lets go of every key and waits until the server has written what still sounds,
    which can be read afterwards; after an exception it ends every note at once.
    """

    def __init__(self, run: Run, player: AsyncPlayer) -> None:
        """Use `Client.play`."""
        self._run = run
        self._player = player
        run(player.__aenter__)

    def __enter__(self) -> Player:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._run(self._player.__aexit__, kind, error, trace)

    def note_on(
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
    ) -> PlayedNote:
        """A key goes down, until the note's `off`, for `seconds` at most.

        None: for as long as it is held, where the bundle's notes can be held on (`model().holds_on`) and the
        server sets no bound of its own; otherwise for the longest that `model().seconds_range` says.

        The other arguments are those of `Client.generate`.

        Raises:
            InvalidRequestError: naming every field that is out of range; nothing was sent.
            TimbrelError: what ended the stream, if it has ended.
        """
        replies: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        note = NoteRequest(
            timbre, pitch, velocity, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, cents=cents
        )
        listener, decoder = self._run(self._player._begin, replies.put, note, seconds)
        return PlayedNote(self, listener, replies, decoder)

    def bend(self, cents: float) -> None:
        """Bends every note, those to come included, as a pitch wheel does; see `PlayedNote.bend`."""
        self._player.bend(cents)

    def move(self, timbre: Timbre) -> None:
        """Every note that sounds takes on another timbre; see `PlayedNote.move`."""
        self._run(self._player.move, timbre)
