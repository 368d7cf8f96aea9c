"""The delay pattern, step by step and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from timbrel_training.tokens.delay import (
    IGNORED,
    CodebookLayout,
    apply_delay,
    collate,
    gate_steps,
    remove_delay,
)

LAYOUT = CodebookLayout(n_codebooks=3, codebook_size=10)
BOS, EOS, __ = LAYOUT.bos_id, LAYOUT.eos_id, IGNORED
CODES = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint16)


def test_ids_follow_the_codes() -> None:
    assert (BOS, EOS, LAYOUT.vocabulary_size) == (10, 11, 12)


def test_a_note_of_two_frames() -> None:
    inputs, targets = apply_delay(CODES, LAYOUT)
    assert inputs.tolist() == [[BOS, BOS, BOS], [1, BOS, BOS], [4, 2, BOS], [EOS, 5, 3]]
    assert targets.tolist() == [[1, __, __], [4, 2, __], [EOS, 5, 3], [__, __, 6]]


def test_a_note_cut_at_the_cap_is_not_told_to_end() -> None:
    inputs, targets = apply_delay(CODES, LAYOUT, cut=True)
    whole_inputs, whole_targets = apply_delay(CODES, LAYOUT)
    assert (inputs == whole_inputs).all()
    assert targets[2, 0] == __
    whole_targets[2, 0] = __
    assert (targets == whole_targets).all()


def test_without_a_delay_a_step_writes_a_frame() -> None:
    inputs, targets = apply_delay(CODES, replace(LAYOUT, codebook_delay=0))
    assert inputs.tolist() == [[BOS, BOS, BOS], [1, 2, 3], [4, 5, 6]]
    assert targets.tolist() == [[1, 2, 3], [4, 5, 6], [EOS, __, __]]


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("n_codebooks", [1, 2, 5])
@pytest.mark.parametrize("n_frames", [0, 1, 2, 7])
def test_round_trip(n_codebooks: int, n_frames: int, delay: int) -> None:
    layout = CodebookLayout(n_codebooks, 100, codebook_delay=delay)
    codes = np.random.default_rng(0).integers(0, 100, (n_frames, n_codebooks)).astype(np.uint16)
    inputs, targets = apply_delay(codes, layout)
    assert len(inputs) == len(targets) == layout.n_steps(n_frames)
    assert (remove_delay(targets, n_frames, layout) == codes).all()
    assert (targets == layout.eos_id).sum() == 1
    assert targets[n_frames, 0] == layout.eos_id
    asked = (targets != IGNORED).sum()
    assert asked == codes.size + 1
    # What a codebook reads is what it was asked for one step before.
    before, after = targets[:-1], inputs[1:]
    assert (before == after)[before != IGNORED].all()


def test_tokens_of_codebook_0_are_relative_to_the_pitch() -> None:
    layout = CodebookLayout(n_codebooks=2, codebook_size=100, codes_per_semitone=2, code_offset=2 * 40 + 50)
    low, high = np.array([[40, 7], [41, 8]]), np.array([[64, 7], [65, 8]])  # the same note an octave apart
    assert layout.to_tokens(low, 60).tolist() == layout.to_tokens(high, 72).tolist() == [[50, 7], [51, 8]]
    for codes, pitch in ((low, 60), (high, 72)):
        assert layout.to_codes(layout.to_tokens(codes, pitch), pitch).tolist() == codes.tolist()


def test_a_code_too_far_from_the_pitch_asked_is_clamped() -> None:
    layout = CodebookLayout(n_codebooks=1, codebook_size=10, codes_per_semitone=1, code_offset=5)
    assert layout.to_tokens(np.array([[9], [0]]), 3).tolist() == [[9], [2]]
    assert layout.to_codes(np.array([[9], [0]]), 9).tolist() == [[9], [4]]


def test_without_codes_per_semitone_tokens_are_the_codes() -> None:
    assert (LAYOUT.to_tokens(CODES, 60) == CODES).all() and (LAYOUT.to_codes(CODES, 60) == CODES).all()


def test_every_frame_is_held_that_begins_before_the_release() -> None:
    assert gate_steps(2, 5).tolist() == [1, 1, 0, 0, 0]
    assert gate_steps(0, 3).tolist() == [1, 0, 0]


def test_the_gate_counts_the_frames_since_the_release() -> None:
    assert gate_steps(2, 7, release_frames=4).tolist() == [4, 4, 3, 2, 1, 0, 0]
    batch = collate([CODES], [1], LAYOUT, max_frames=8, release_frames=2)
    assert batch.gate.tolist() == [gate_steps(1, batch.tokens.shape[1], 2).tolist()]


def test_a_batch_is_padded_with_what_is_not_trained() -> None:
    longer = np.arange(12).reshape(4, 3).astype(np.uint16) % 10
    batch = collate([CODES, longer], [1, 9], LAYOUT, max_frames=8)
    assert batch.tokens.shape == batch.targets.shape == (2, 6, 3)
    inputs, targets = apply_delay(CODES, LAYOUT)
    assert (batch.tokens[0, :4].numpy() == inputs).all()
    assert (batch.targets[0, :4].numpy() == targets).all()
    assert (batch.targets[0, 4:] == IGNORED).all()
    assert batch.gate.tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]]


def test_a_note_beyond_the_cap_is_cut_in_a_batch() -> None:
    batch = collate([np.zeros((5, 3), dtype=np.uint16)], [5], LAYOUT, max_frames=3)
    assert batch.tokens.shape == (1, LAYOUT.n_steps(3), 3)
    assert (batch.targets != EOS).all()


def test_codes_of_another_codec_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[frames, 3\]"):
        apply_delay(CODES[:, :2], LAYOUT)
