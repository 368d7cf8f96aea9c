"""Token ids, and the delay pattern (Copet et al., 2023, "MusicGen"): codebook q runs q frames behind.

Step s predicts, for codebook q, the code of frame s - q, and reads that of frame s - 1 - q. So one step
predicts all codebooks in parallel, and a frame's later codebooks still see its earlier ones. Where a codec's
codebooks do not build on each other there is no delay: step s predicts all of frame s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100
"""The target where nothing is trained: the default `ignore_index` of PyTorch's cross entropy."""


@dataclass(frozen=True)
class CodebookLayout:
    """Token ids of one codebook: the codes 0 .. codebook_size - 1, then BOS, then EOS.

    Where the codec codes a note's fundamental in codebook 0, its tokens are relative to the pitch asked: then
    a note in tune has the same tokens at every pitch, and what is learnt at one serves all. The others'
    tokens are their codes.
    """

    n_codebooks: int
    codebook_size: int
    codes_per_semitone: int = 0
    """Codes of codebook 0 per semitone; 0 where it does not code the fundamental."""
    code_offset: int = 0
    """Token of codebook 0 = code - codes_per_semitone * pitch + code_offset."""
    codebook_delay: int = 1
    """Frames by which each codebook runs behind the one before it."""

    @property
    def bos_id(self) -> int:
        """The token that a codebook reads before its first code."""
        return self.codebook_size

    @property
    def eos_id(self) -> int:
        """The token that codebook 0 says after the last frame, and that all read from then on."""
        return self.codebook_size + 1

    @property
    def vocabulary_size(self) -> int:
        """Codes, BOS and EOS."""
        return self.codebook_size + 2

    @property
    def last_delay(self) -> int:
        """Frames by which the last codebook runs behind the first."""
        return (self.n_codebooks - 1) * self.codebook_delay

    def n_steps(self, n_frames: int) -> int:
        """Returns the decoder steps of a whole note, the one that predicts EOS included."""
        return n_frames + max(self.last_delay, 1)

    def to_tokens(self, codes: NDArray[np.integer], pitch: int) -> NDArray[np.int64]:
        """Returns tokens int64 [T, K] of a note's codes [T, K]; `pitch` is its MIDI note number."""
        return self._shifted(codes, -self.code_shift(pitch))

    def to_codes(self, tokens: NDArray[np.integer], pitch: int) -> NDArray[np.uint16]:
        """Returns codes uint16 [T, K] of a note's tokens [T, K], none of them BOS or EOS."""
        return self._shifted(tokens, self.code_shift(pitch)).astype(np.uint16)

    def code_shift(self, pitch: int) -> int:
        """Returns the number to add to a token of codebook 0 to have its code."""
        return self.codes_per_semitone * pitch - self.code_offset

    def _shifted(self, values: NDArray[np.integer], shift: int) -> NDArray[np.int64]:
        shifted = values.astype(np.int64)
        shifted[:, 0] = np.clip(shifted[:, 0] + shift, 0, self.codebook_size - 1)
        return shifted


Codes = NDArray[np.uint16] | NDArray[np.int64]


@dataclass(frozen=True)
class TokenBatch:
    """Notes side by side, padded to the longest."""

    tokens: Tensor  # int64 [B, S, K], what each step reads
    targets: Tensor  # int64 [B, S, K], what it should predict; IGNORED where nothing is asked
    gate: Tensor  # int64 [B, S], see gate_steps

    def to(self, device: torch.device | str) -> TokenBatch:
        """Returns the same on another device."""
        return TokenBatch(self.tokens.to(device), self.targets.to(device), self.gate.to(device))


def apply_delay(
    codes: Codes, layout: CodebookLayout, *, cut: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns what a note's steps read and predict, int64 [S, K] each, S = layout.n_steps(T), of its codes
    [T, K].

    `cut`: the note goes on beyond these codes, cut at the cap: then no step predicts EOS. Raises ValueError:
    the codes have another number of codebooks than the layout.
    """
    if codes.ndim != 2 or codes.shape[1] != layout.n_codebooks:
        raise ValueError(f"codes have shape {codes.shape}; expected [frames, {layout.n_codebooks}]")
    n_frames = codes.shape[0]
    n_steps = layout.n_steps(n_frames)
    inputs = np.full((n_steps, layout.n_codebooks), layout.eos_id, dtype=np.int64)
    targets = np.full((n_steps, layout.n_codebooks), IGNORED, dtype=np.int64)
    for q in range(layout.n_codebooks):
        delay = q * layout.codebook_delay
        inputs[: delay + 1, q] = layout.bos_id
        n_read = min(n_frames, n_steps - 1 - delay)
        inputs[delay + 1 : delay + 1 + n_read, q] = codes[:n_read, q]
        targets[delay : delay + n_frames, q] = codes[:, q]
    if not cut:
        targets[n_frames, 0] = layout.eos_id
    return inputs, targets


def remove_delay(tokens: NDArray[np.int64], n_frames: int, layout: CodebookLayout) -> NDArray[np.uint16]:
    """Returns codes uint16 [n_frames, K] of predicted tokens [S, K], S >= n_frames + layout.last_delay."""
    delays = [q * layout.codebook_delay for q in range(layout.n_codebooks)]
    columns = [tokens[delay : delay + n_frames, q] for q, delay in enumerate(delays)]
    return np.stack(columns, axis=1).astype(np.uint16)


def gate_steps(held_frames: int, n_steps: int, release_frames: int = 1) -> NDArray[np.int64]:
    """Returns the gate [n_steps]: `release_frames` while codebook 0's frame is held (at least one is), then
    one less with each frame, down to 0."""
    return np.clip(max(held_frames, 1) - 1 + release_frames - np.arange(n_steps), 0, release_frames)


def collate(
    notes: Sequence[Codes],
    held_frames: Sequence[int],
    layout: CodebookLayout,
    *,
    max_frames: int,
    release_frames: int = 1,
) -> TokenBatch:
    """Batches notes, codes [T, K] each, for training; those longer than `max_frames` are cut there and get no
    EOS target. Their gates are those of `gate_steps`.

    Returns tensors padded to the longest note's steps: the inputs with EOS, the targets with IGNORED.
    """
    longest = max(layout.n_steps(min(len(codes), max_frames)) for codes in notes)
    shape = (len(notes), longest, layout.n_codebooks)
    tokens = np.full(shape, layout.eos_id, dtype=np.int64)
    targets = np.full(shape, IGNORED, dtype=np.int64)
    gate = np.zeros(shape[:2], dtype=np.int64)
    for row, (codes, held) in enumerate(zip(notes, held_frames, strict=True)):
        inputs, wanted = apply_delay(codes[:max_frames], layout, cut=len(codes) > max_frames)
        tokens[row, : len(inputs)] = inputs
        targets[row, : len(wanted)] = wanted
        gate[row] = gate_steps(held, longest, release_frames)
    return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(gate))
