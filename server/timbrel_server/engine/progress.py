"""The host's half of the delay pattern (Copet et al., 2023, "MusicGen"), for the notes of all rows at once.

With a delay of 1, step s predicts, for codebook q, the code of frame s - q, and reads that of frame
s - 1 - q. So frame t is complete after step t + K - 1, and the last step that a note of n frames needs is
n + K - 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from timbrel_server.engine.request import Finish, Frame

FAR = 1 << 60
"""A position, and a number of frames, that no note reaches."""

_ONE = np.ones(1, np.int64)  # a number of Python's would take numpy longer


@dataclass(frozen=True)
class TokenLayout:
    """Tells what the decoder's tokens mean."""

    n_codebooks: int
    """K."""

    bos_id: int
    """Read by a codebook that has not begun."""

    eos_id: int
    """Said by codebook 0 after the last frame; read by every codebook whose part of the note is over."""

    max_frames: int
    """A note that gets this long is cut."""

    codes_per_semitone: int = 0
    """Codebook 0's tokens are relative to the pitch asked: code = token + this * pitch - code_offset, within
    the codebook."""

    code_offset: int = 0
    """See `codes_per_semitone`."""

    codebook_delay: int = 1
    """Frames by which each codebook runs behind the one before it."""

    release_frames: int = 1
    """The gate is this while the key is held, then one less with each frame, down to 0."""

    @property
    def last_delay(self) -> int:
        """Frames by which the last codebook runs behind the first: so many steps more a note needs."""
        return (self.n_codebooks - 1) * self.codebook_delay

    @property
    def max_steps(self) -> int:
        """Steps of the longest note. A position of the cache per step is needed, and no more."""
        return self.max_frames + self.last_delay


class NoteColumns:
    """Follows the notes of all rows: takes the tokens that each step draws, gives those that the next one
    reads and the codes of finished frames.

    All that a step reads or changes is a column, an array with an entry for each row. Python looks at a row
    only when its note ends or has as many frames as somebody waits for.
    """

    def __init__(self, layout: TokenLayout, n_rows: int) -> None:
        k, n_steps, delay = layout.n_codebooks, layout.max_steps, layout.codebook_delay
        self._layout, self._last_delay = layout, layout.last_delay
        self._eos_id = np.array([layout.eos_id])
        self.position = np.zeros(n_rows, np.int64)
        """The step to take next, from 0; also how many positions the cache holds. Without a note, 0."""
        self.tokens = np.full((n_rows, k), layout.bos_id, np.int64)
        """[rows, K], what that step reads."""
        self._n_frames = np.full(n_rows, FAR)  # of notes that have not ended, FAR
        self._wake_position = np.full(n_rows, FAR)  # where `advance` names the row
        self._wake_seconds = np.full(n_rows, math.inf)  # when it does, if not before
        self._next_wake_seconds = math.inf  # no later than the first of them
        self._code_shift = [0] * n_rows
        self._finish: list[Finish | None] = [None] * n_rows
        self._unsteady: set[int] = set()  # rows in which not every codebook goes on
        self._delays = 1 + delay * np.arange(k)
        self._rows = np.arange(n_rows)
        self._drawn = np.zeros((n_rows, n_steps, k), np.int32)
        row, step, codebook = self._drawn.strides
        self._frames = as_strided(  # by row and frame: each codebook that much later
            self._drawn, (n_rows, layout.max_frames, k), (row, step, codebook + delay * step), writeable=False
        )

    def begin(self, row: int, pitch: int) -> None:
        """A note begins. `advance` names the row when its first frame is complete."""
        self.clear(row)
        self._code_shift[row] = self._layout.codes_per_semitone * pitch - self._layout.code_offset
        self.wake(row, 1)
        if self._last_delay:
            self._unsteady.add(row)

    def clear(self, row: int) -> None:
        """There is no note here."""
        self.position[row], self.tokens[row] = 0, self._layout.bos_id
        self._n_frames[row], self._finish[row] = FAR, None
        self._wake_position[row], self._wake_seconds[row] = FAR, math.inf
        self._unsteady.discard(row)

    def move(self, source: int, target: int) -> None:
        """A note changes rows."""
        for column in (self.position, self.tokens, self._n_frames, self._wake_position, self._wake_seconds):
            column[target] = column[source]
        n_steps = self.position[source]
        self._drawn[target, :n_steps] = self._drawn[source, :n_steps]
        self._finish[target], self._code_shift[target] = self._finish[source], self._code_shift[source]
        if source in self._unsteady:
            self._unsteady.add(target)
        self.clear(source)

    def wake(self, row: int, n_frames: int, seconds: float = math.inf) -> None:
        """Has `advance` name this row once so many frames of its note are complete, or at a time, whichever
        comes first. It is named in any case when the note ends, and when it is complete.

        Args:
            seconds: by the clock whose time `advance` is told.
        """
        length = self._n_frames[row]
        end = self._layout.max_frames if length == FAR else length + self._last_delay
        self._wake_position[row] = min(n_frames + self._last_delay, end)
        self._wake_seconds[row] = seconds
        self._next_wake_seconds = min(self._next_wake_seconds, seconds)

    def advance(
        self, drawn: npt.NDArray[np.int64], now: float = 0.0, moved: npt.NDArray[np.bool_] | None = None
    ) -> Sequence[int]:
        """Takes the tokens [n, K] that the first n rows drew at their positions.

        Args:
            now: seconds since some moment in the past.
            moved: [n], the rows that go on to the next position, where it is not all of them. What the
                others drew is dropped.

        Returns:
            the rows to look at, rising.
        """
        # With one note, time goes by the number of numpy's operations, and those in place are the slow ones.
        n = len(drawn)
        tokens, before = self.tokens[:n], self.position[:n]
        self._drawn[self._rows[:n], before] = drawn
        if moved is None:
            tokens[:] = drawn
            position = before + _ONE
        else:
            tokens[moved] = drawn[moved]
            position = before + moved
        before[:] = position
        is_named = (drawn[:, 0] == self._eos_id) | (position >= self._wake_position[:n])
        if now >= self._next_wake_seconds:
            seconds = self._wake_seconds[:n]
            is_late = seconds <= now if moved is None else (seconds <= now) & moved
            is_named = is_named | is_late
            self._next_wake_seconds = seconds.min(initial=math.inf, where=~is_late)
        if moved is not None:
            is_named = is_named & moved
        named: list[int] = is_named.nonzero()[0].tolist()
        for row in named:
            self._look_for_end(row, drawn[row, 0])
        if self._unsteady:
            frame = position[:, None] - self._delays  # that each token was drawn for
            tokens[frame < 0] = self._layout.bos_id
            tokens[frame >= self._n_frames[:n, None]] = self._layout.eos_id
        return named

    def n_complete(self, row: int) -> int:
        """Frames whose every code has been drawn."""
        return max(0, min(int(self.position[row]) - self._last_delay, int(self._n_frames[row])))

    def finish(self, row: int) -> Finish | None:
        """The reason for which the note ended, once every frame is complete: no further step is needed."""
        if (finish := self._finish[row]) is None:
            return None
        n_frames = self._n_frames[row]
        return finish if n_frames == 0 or self.position[row] >= n_frames + self._last_delay else None

    def frames(self, row: int, first: int, last: int) -> list[Frame]:
        """Returns the frames of a row's note from `first` to before `last`. They have to be complete."""
        zeroth, *others = self._frames[row, first:last].T.tolist()
        shift, top = self._code_shift[row], self._layout.bos_id - 1
        codes = [0 if (code := token + shift) < 0 else code if code < top else top for token in zeroth]
        return list(zip(codes, *others, strict=True))

    def _look_for_end(self, row: int, token: int) -> None:
        if self._finish[row] is not None:
            return
        position = int(self.position[row])
        if token == self._layout.eos_id:
            self._n_frames[row], self._finish[row] = position - 1, Finish.EOS
        elif position == self._layout.max_frames:
            self._n_frames[row], self._finish[row] = position, Finish.CAP
        elif position > self._last_delay:
            self._unsteady.discard(row)
            return
        else:
            return
        self._unsteady.add(row)
        self.wake(row, FAR)
