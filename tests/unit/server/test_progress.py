"""The host's half of the delay pattern, on scripted tokens."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from timbrel_server.engine.progress import NoteProgress, TokenLayout
from timbrel_server.engine.request import Finish, Frame

SIZE = 10
BOS, EOS = SIZE, SIZE + 1


def layout(n_codebooks: int, max_frames: int = 20) -> TokenLayout:
    return TokenLayout(n_codebooks, BOS, EOS, max_frames)


def made_up_note(n_frames: int, n_codebooks: int) -> list[Frame]:
    rng = random.Random(n_frames * 100 + n_codebooks)
    return [tuple(rng.randrange(SIZE) for _ in range(n_codebooks)) for _ in range(n_frames)]


def play(
    note: list[Frame], layout: TokenLayout, *, ends: bool = True
) -> tuple[NoteProgress, list[Frame], list[int]]:
    """Feeds a note's tokens as a decoder would draw them, with rubbish wherever no frame is asked for.

    Returns the progress, the frames it gave, and the step at which each was given.
    """
    progress = NoteProgress(layout, 60)
    frames, given_at = [], []
    while not progress.complete:
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
    progress = NoteProgress(relative, 61)
    assert progress.advance([2, 0]) is None
    assert progress.advance([EOS, 4]) == (5, 4)
    assert progress.tokens == [EOS, EOS] or progress.complete


def test_takes_no_step_more_than_the_note_needs() -> None:
    progress, _, _ = play(made_up_note(5, 4), layout(4))
    assert progress.position == 5 + 4 - 1


def test_an_empty_note_ends_with_its_first_step() -> None:
    progress = NoteProgress(layout(4), 60)
    assert progress.advance([EOS, 1, 2, 3]) is None
    assert progress.complete
    assert progress.finish is Finish.EOS


def test_reads_bos_before_the_note_and_eos_behind_it() -> None:
    progress = NoteProgress(layout(3), 60)
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
