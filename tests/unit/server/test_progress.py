"""The host's half of the delay pattern, on scripted tokens: one note by itself, then any in any company."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timbrel_server.engine.progress import NoteColumns, TokenLayout
from timbrel_server.engine.request import Finish, Frame

SIZE = 10
BOS, EOS = SIZE, SIZE + 1


def layout(n_codebooks: int, max_frames: int = 20) -> TokenLayout:
    return TokenLayout(n_codebooks, BOS, EOS, max_frames)


def made_up_note(n_frames: int, n_codebooks: int) -> list[Frame]:
    rng = random.Random(n_frames * 100 + n_codebooks)
    return [tuple(rng.randrange(SIZE) for _ in range(n_codebooks)) for _ in range(n_frames)]


class OneNote:
    """The only note of columns with one row, moved on by hand."""

    def __init__(self, layout: TokenLayout, pitch: int) -> None:
        self._columns = NoteColumns(layout, 1)
        self._columns.begin(0, pitch)

    @property
    def position(self) -> int:
        return int(self._columns.position[0])

    @property
    def tokens(self) -> list[int]:
        read: list[int] = self._columns.tokens[0].tolist()
        return read

    @property
    def finish(self) -> Finish | None:
        return self._columns.finish(0)

    def advance(self, drawn: list[int]) -> Frame | None:
        """The frame that the tokens complete, if any."""
        before = self._columns.n_complete(0)
        self._columns.advance(np.array([drawn]))
        if (n_complete := self._columns.n_complete(0)) == before:
            return None
        [frame] = self._columns.frames(0, before, n_complete)
        return frame


def play(
    note: list[Frame], layout: TokenLayout, *, ends: bool = True
) -> tuple[OneNote, list[Frame], list[int]]:
    """Feeds a note's tokens as a decoder would draw them, with rubbish wherever no frame is asked for.

    Returns the note, the frames it gave, and the step at which each was given.
    """
    progress = OneNote(layout, 60)
    frames, given_at = [], []
    while progress.finish is None:
        step = progress.position
        wanted = [step - q * layout.codebook_delay for q in range(layout.n_codebooks)]
        drawn = [note[frame][q] if 0 <= frame < len(note) else 3 for q, frame in enumerate(wanted)]
        if ends and step == len(note):
            drawn[0] = EOS
        if (frame := progress.advance(drawn)) is not None:
            frames.append(frame)
            given_at.append(step)
    return progress, frames, given_at


@pytest.mark.parametrize("n_codebooks", [1, 2, 4, 8])
@pytest.mark.parametrize("n_frames", [0, 1, 2, 7, 19])
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_gives_the_note_that_was_drawn(n_frames: int, n_codebooks: int, delay: int) -> None:
    note = made_up_note(n_frames, n_codebooks)
    progress, frames, given_at = play(note, replace(layout(n_codebooks), codebook_delay=delay))
    assert frames == note
    assert progress.finish is Finish.EOS
    assert given_at == [t + (n_codebooks - 1) * delay for t in range(n_frames)]


@pytest.mark.parametrize("n_codebooks", [1, 2, 4])
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_cuts_a_note_at_the_cap(n_codebooks: int, delay: int) -> None:
    note, delayed = made_up_note(30, n_codebooks), replace(layout(n_codebooks), codebook_delay=delay)
    progress, frames, _ = play(note, delayed, ends=False)
    assert frames == note[:20]
    assert progress.finish is Finish.CAP
    assert progress.position == delayed.max_steps


def test_gives_codes_where_tokens_are_relative_to_the_pitch() -> None:
    relative = replace(layout(2), codes_per_semitone=3, code_offset=3 * 60)
    progress = OneNote(relative, 61)
    assert progress.advance([2, 0]) is None
    assert progress.advance([EOS, 4]) == (5, 4)
    assert progress.finish is Finish.EOS


def test_takes_no_step_more_than_the_note_needs() -> None:
    progress, _, _ = play(made_up_note(5, 4), layout(4))
    assert progress.position == 5 + 4 - 1


def test_an_empty_note_ends_with_its_first_step() -> None:
    progress = OneNote(layout(4), 60)
    assert progress.advance([EOS, 1, 2, 3]) is None
    assert progress.finish is Finish.EOS


def test_reads_bos_before_the_note_and_eos_behind_it() -> None:
    progress = OneNote(layout(3), 60)
    read = [progress.tokens]
    for drawn in ([1, 9, 9], [2, 4, 9], [EOS, 5, 7], [9, 9, 8]):
        progress.advance(drawn)
        read.append(progress.tokens)
    assert read == [
        [BOS, BOS, BOS],
        [1, BOS, BOS],
        [2, 4, BOS],
        [EOS, 5, 7],
        [EOS, EOS, 8],
    ]


class PlainNote:
    """One note, written down as the pattern is defined: nothing is kept but what was drawn."""

    def __init__(self, layout: TokenLayout, pitch: int) -> None:
        self._layout, self._pitch = layout, pitch
        self.drawn: list[list[int]] = []  # by step

    @property
    def n_frames(self) -> int | None:
        for step, tokens in enumerate(self.drawn):
            if tokens[0] == EOS:
                return step
            if step + 1 == self._layout.max_frames:
                return step + 1
        return None

    @property
    def finish(self) -> Finish | None:
        n_frames = self.n_frames
        if n_frames is None or (n_frames and len(self.drawn) < n_frames + self._layout.last_delay):
            return None
        return Finish.EOS if n_frames < self._layout.max_frames else Finish.CAP

    @property
    def reads(self) -> list[int]:
        """What the next step reads."""
        return [self._read(q) for q in range(self._layout.n_codebooks)]

    @property
    def frames(self) -> list[Frame]:
        """All that are complete."""
        delay = self._layout.codebook_delay
        n = max(0, len(self.drawn) - self._layout.last_delay)
        n = n if self.n_frames is None else min(n, self.n_frames)
        return [
            tuple(self._code(self.drawn[t + q * delay][q], q) for q in range(len(self.reads)))
            for t in range(n)
        ]

    def _read(self, q: int) -> int:
        frame = len(self.drawn) - 1 - q * self._layout.codebook_delay
        if frame < 0:
            return BOS
        return EOS if self.n_frames is not None and frame >= self.n_frames else self.drawn[-1][q]

    def _code(self, token: int, q: int) -> int:
        shift = self._layout.codes_per_semitone * self._pitch - self._layout.code_offset
        return token if q else min(max(token + shift, 0), BOS - 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.builds(
        TokenLayout,
        n_codebooks=st.integers(1, 4),
        bos_id=st.just(BOS),
        eos_id=st.just(EOS),
        max_frames=st.integers(1, 9),
        codes_per_semitone=st.integers(0, 2),
        code_offset=st.integers(0, 130),
        codebook_delay=st.integers(0, 2),
    ),
    st.integers(1, 5),
)
def test_notes_in_any_company_are_what_the_pattern_says(seed: int, layout: TokenLayout, n_rows: int) -> None:
    """Notes begin, wait, are given up and change rows at random; frames are fetched late, and only where a
    row is named is it looked at."""
    rng, columns, plain = random.Random(seed), NoteColumns(layout, n_rows), dict[int, PlainNote]()
    due: dict[int, tuple[int, float]] = {}  # row -> what it waits for
    fetched: dict[int, list[Frame]] = {}
    for now in range(60):
        for row in set(range(n_rows)) - set(plain):
            if rng.random() < 0.5:
                pitch = rng.randrange(40, 80)
                columns.begin(row, pitch)
                plain[row], due[row], fetched[row] = PlainNote(layout, pitch), (1, math.inf), []
        if plain and len(plain) < n_rows and rng.random() < 0.2:
            source, target = rng.choice(sorted(plain)), min(set(range(n_rows)) - set(plain))
            columns.move(source, target)
            for each in (plain, due, fetched):
                each[target] = each.pop(source)  # type: ignore[attr-defined]
        moved = np.array([row in plain and rng.random() < 0.9 for row in range(n_rows)])
        drawn = np.array([[rng.randrange(SIZE) for _ in range(layout.n_codebooks)] for _ in range(n_rows)])
        drawn[[rng.random() < 0.15 for _ in range(n_rows)], 0] = EOS
        before = {row: note.n_frames for row, note in plain.items()}
        named = columns.advance(drawn, float(now), None if moved.all() else moved)
        for row, note in sorted(plain.items()):
            if moved[row]:
                note.drawn.append(drawn[row].tolist())
            assert columns.tokens[row].tolist() == note.reads
            assert columns.position[row] == len(note.drawn)
            assert columns.n_complete(row) == len(note.frames)
            assert columns.finish(row) is note.finish
            n_frames, seconds = due[row]
            wants_a_look = note.n_frames != before[row] or note.finish is not None
            if moved[row] and (wants_a_look or len(note.frames) >= n_frames or now >= seconds):
                assert row in named
        assert not [row for row in named if not moved[row]]
        for row in named:
            fetched[row] += columns.frames(row, len(fetched[row]), columns.n_complete(row))
            assert fetched[row] == plain[row].frames
        for row in named:
            due[row] = len(fetched[row]) + rng.randrange(1, 4), rng.choice([math.inf, now + 2.0])
            columns.wake(row, *due[row])
        for row in [row for row, note in plain.items() if note.finish or rng.random() < 0.02]:
            columns.clear(row)
            assert columns.position[row] == 0
            del plain[row]
