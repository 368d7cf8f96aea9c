"""An instrument played live: keys go down and up while notes sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from timbrel.aio.player import AsyncPlayedNote, AsyncPlayer
from timbrel.core.reply import Audio
from timbrel.core.request import NoteRequest, Path, Timbre
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

    Threads may share it. Reading raises what `Client.generate` raises, DeadlineExceededError where nothing
    comes for as long as the client allows a call, and CancelledError after `cancel`, or where nobody read it
    until as much had come as of the longest note (ten minutes). Who is interrupted as they read may read on.
    """

    def __init__(self, run: Run, note: AsyncPlayedNote) -> None:
        """Use `Player.note_on`."""
        self._run = run
        self._note = note

    @property
    def seed(self) -> int | None:
        """The seed in use; known with the first audio."""
        return self._note.seed

    @property
    def held_seconds(self) -> float | None:
        """The seconds that the key was held, as the server wrote the note; known once that has ended.

        `Client.generate` for so many with the same seed gives the same codes, but for those that `off` left
        out, and unless `move` gave it another timbre.
        """
        return self._note.held_seconds

    @property
    def let_go(self) -> bool | None:
        """Tells whether the server let go of the key, and not `off`: it had been held for as long as it may
        be, or every slot was taken, and somebody waited. Known once the note has ended."""
        return self._note.let_go

    def __iter__(self) -> Iterator[Audio]:
        return self

    def __next__(self) -> Audio:
        audio: Audio | None = self._run(self._note._next_audio)
        if audio is None:
            raise StopIteration
        return audio

    def off(self) -> None:
        """The key goes up; the release follows. Harmless where it is up, or where the note has ended.

        What the server had written ahead is left out where it has not been read: who reads a note as it is
        played hears the release within a twentieth of a second or so.
        """
        loop_thread().call_soon(self._note.off)

    def cancel(self) -> None:
        """Ends the note at once. Harmless where it has ended."""
        loop_thread().call_soon(self._note.cancel)

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
        self._note.bend(cents)

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
        self._run(self._note.move, timbre)


class Player:
    """One stream of notes to a server, made by `Client.play`. Threads may share it.

        >>> with client.play() as player:
        ...     chord = [player.note_on("Violin", pitch, seconds=0.3) for pitch in (60, 64, 67)]
        >>> [sum(len(chunk) for chunk in note) > 0 for note in chord]
        [True, True, True]

    Leaving the `with` block lets go of every key and waits until the server has written what still sounds,
    which can be read afterwards; after an exception it ends every note at once. In a notebook, where there is
    no block, `close` does it.
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

    def close(self) -> None:
        """Lets go of every key, and waits until the server has written what still sounds.

        >>> player = client.play()
        >>> note = player.note_on("Violin", 60)
        >>> player.close()
        >>> sum(len(chunk) for chunk in note) > 0
        True
        """
        self._run(self._player.close)

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
        note = self._run(
            self._player.note_on,
            timbre,
            pitch,
            velocity,
            seconds,
            seed,
            cents=cents,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        return PlayedNote(self._run, note)

    def bend(self, cents: float) -> None:
        """Bends every note, those to come included, as a pitch wheel does; see `PlayedNote.bend`."""
        self._player.bend(cents)

    def move(self, timbre: Timbre) -> None:
        """Every note that sounds takes on another timbre; see `PlayedNote.move`."""
        self._run(self._player.move, timbre)
