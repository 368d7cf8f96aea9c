"""The host's half of the delay pattern (Copet et al., 2023, "MusicGen"), for one note.

With a delay of 1, step s predicts, for codebook q, the code of frame s - q, and reads that of frame
s - 1 - q. So frame t is complete after step t + K - 1, and the last step that a note of n frames needs is
n + K - 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from timbrel_server.engine.request import Finish, Frame


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
    """Codebook 0's tokens are relative to the pitch asked: code = token + this * pitch - code_offset."""

    code_offset: int = 0
    """See `codes_per_semitone`."""

    codebook_delay: int = 1
    """Frames by which each codebook runs behind the one before it."""

    @property
    def last_delay(self) -> int:
        """Frames by which the last codebook runs behind the first: so many steps more a note needs."""
        return (self.n_codebooks - 1) * self.codebook_delay

    @property
    def max_steps(self) -> int:
        """Steps of the longest note. A position of the cache per step is needed, and no more."""
        return self.max_frames + self.last_delay

    def code(self, token: int, pitch: int) -> int:
        """Returns the code that a token of codebook 0 stands for."""
        code = token + self.codes_per_semitone * pitch - self.code_offset
        return min(max(code, 0), self.bos_id - 1)


class NoteProgress:
    """Follows a note: takes the tokens that each step draws, gives those that the next one reads and
    the codes of finished frames."""

    def __init__(self, layout: TokenLayout, pitch: int) -> None:
        self._layout = layout
        self._pitch = pitch
        self._delay, self._last_delay = layout.codebook_delay, layout.last_delay
        # What the steps drew that an open frame has codes of, [K] each.
        self._recent: deque[Sequence[int]] = deque(maxlen=self._last_delay + 1)
        self._n_frames: int | None = None
        self.position = 0
        """The step to take next, from 0; also how many positions the cache holds."""
        self.tokens: Sequence[int] = [layout.bos_id] * layout.n_codebooks
        """[K], what that step reads."""
        self.finish: Finish | None = None
        """Set as soon as the length is known: the last frame is complete `last_delay` steps after that."""

    @property
    def complete(self) -> bool:
        """Whether no further step is needed."""
        if self._n_frames is None:
            return False
        return self._n_frames == 0 or self.position >= self._n_frames + self._last_delay

    def advance(self, drawn: Sequence[int]) -> Frame | None:
        """Takes the tokens [K] drawn at `position`; returns the frame that they complete, if any."""
        step = self.position
        self.position += 1
        self._recent.append(drawn)
        if self._n_frames is None:
            self._look_for_end(step, drawn[0])
        first_frame_open = step - self._last_delay
        if self._n_frames is None and first_frame_open >= 0:  # nearly always: every codebook goes on
            self.tokens = drawn
        else:
            self.tokens = [self._next_token(step - q * self._delay, token) for q, token in enumerate(drawn)]
        if first_frame_open < 0 or self._is_past_end(first_frame_open):
            return None
        first, *others = [self._recent[q * self._delay][q] for q in range(self._layout.n_codebooks)]
        return (self._layout.code(first, self._pitch), *others)

    def _look_for_end(self, step: int, token: int) -> None:
        if token == self._layout.eos_id:
            self._n_frames, self.finish = step, Finish.EOS
        elif step + 1 == self._layout.max_frames:
            self._n_frames, self.finish = step + 1, Finish.CAP

    def _next_token(self, frame: int, token: int) -> int:
        """Returns what a codebook reads that has just drawn this token for this frame."""
        if frame < 0:
            return self._layout.bos_id
        return self._layout.eos_id if self._is_past_end(frame) else token

    def _is_past_end(self, frame: int) -> bool:
        return self._n_frames is not None and frame >= self._n_frames
