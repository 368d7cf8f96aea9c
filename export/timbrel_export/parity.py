"""Whether the graphs of a bundle compute what the PyTorch modules do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_export.errors import ParityError
from timbrel_export.graph_decoder import GraphDecoder
from timbrel_export.sample_note import SampleNote
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.tokens.delay import apply_delay, gate_steps

MAX_LOGIT_DIFFERENCE = 1e-3
"""Largest difference of any logit, in fp32."""
MIN_MARGIN = 2e-3
"""Where the oracle's two best candidates lie further apart, the graph must choose the same."""


class Findings(Protocol):
    """Takes what a comparison finds, note by note."""

    def add(
        self,
        where: str,
        logits: NDArray[np.float32],
        tokens: NDArray[np.int64],
        oracle: NDArray[np.float32],
    ) -> None:
        """Compares one note: the graph's logits [S, K, V] and greedy tokens [S, K], the oracle's logits."""


F = TypeVar("F", bound=Findings)


@dataclass
class DecoderParity:
    """What the comparison of a decode graph with the oracle found."""

    max_logit_difference: float = 0.0
    n_tokens: int = 0
    n_flips_outside_margin: int = 0
    n_flips_within_margin: int = 0
    flips: list[str] = field(default_factory=list)
    """Where the first flips outside of the margin were."""

    def add(
        self,
        where: str,
        logits: NDArray[np.float32],
        tokens: NDArray[np.int64],
        oracle: NDArray[np.float32],
    ) -> None:
        """Compares one note: the graph's logits [S, K, V] and greedy tokens [S, K], the oracle's logits."""
        difference = np.abs(logits - oracle)
        if not np.isfinite(difference).all():
            raise ParityError(f"{where}: the graph's logits are not finite")
        self.max_logit_difference = max(self.max_logit_difference, float(difference.max()))
        best = np.sort(oracle, axis=2)[:, :, -2:]
        flipped = tokens != oracle.argmax(axis=2)
        certain = best[:, :, 1] - best[:, :, 0] > MIN_MARGIN
        self.n_tokens += tokens.size
        self.n_flips_outside_margin += int((flipped & certain).sum())
        self.n_flips_within_margin += int((flipped & ~certain).sum())
        self.flips += [f"{where} step {s} codebook {q}" for s, q in np.argwhere(flipped & certain)[:3]]

    def check(self, graph: str) -> None:
        """Raises ParityError where the graph may not ship."""
        if self.max_logit_difference > MAX_LOGIT_DIFFERENCE:
            raise ParityError(
                f"{graph}: logits differ from the oracle's by up to {self.max_logit_difference:.3g}, "
                f"allowed are {MAX_LOGIT_DIFFERENCE:g}"
            )
        if self.n_flips_outside_margin:
            raise ParityError(
                f"{graph}: {self.n_flips_outside_margin} of {self.n_tokens} tokens differ from the oracle's "
                f"where it is certain ({self.flips[0]})"
            )


def compare_decoder(
    model: NoteTransformer, decoder: GraphDecoder, notes: Sequence[SampleNote], parity: F
) -> F:
    """Compares a decode graph with the model, teacher-forced on given notes, then on its own output.

    All notes run as rows of one batch, each starting three steps after the one above it. Returns `parity`.
    """
    given = [read_tokens(model.config, note) for note in notes]
    _compare(parity, "sample note", model, decoder, notes, given)
    written = _write_greedily(decoder, notes)
    _compare(parity, "own output", model, decoder, notes, written)
    return parity


def _compare(
    parity: Findings,
    what: str,
    model: NoteTransformer,
    decoder: GraphDecoder,
    notes: Sequence[SampleNote],
    inputs: Sequence[NDArray[np.int64]],
) -> None:
    begin_notes(decoder, notes)
    shape = (model.config.n_codebooks, model.config.layout.vocabulary_size)
    logits = [np.zeros((len(each), *shape), dtype=np.float32) for each in inputs]
    tokens = [np.zeros_like(each) for each in inputs]
    gates = [gate_steps(note.held_frames, len(each)) for note, each in zip(notes, inputs, strict=True)]
    rows = range(len(notes))
    for tick in range(max(3 * row + len(inputs[row]) for row in rows)):
        at = [min(max(tick - 3 * row, 0), len(inputs[row]) - 1) for row in rows]
        chosen, scores = decoder.step(
            np.stack([inputs[row][at[row]] for row in rows]),
            np.array([gates[row][at[row]] for row in rows]),
            np.array(at, dtype=np.int32),
        )
        for row in rows:
            logits[row][at[row]], tokens[row][at[row]] = scores[row], chosen[row]
    for row, note in enumerate(notes):
        oracle = _oracle(model, note, inputs[row], gates[row])
        parity.add(f"{what} {row}", logits[row], tokens[row], oracle)


def _write_greedily(decoder: GraphDecoder, notes: Sequence[SampleNote]) -> list[NDArray[np.int64]]:
    """What each note's steps read when the graph is given its own tokens: int64 [S, K] each."""
    layout, cap = decoder.config.layout, decoder.config.max_frames
    begin_notes(decoder, notes)
    tokens = np.full((len(notes), layout.n_codebooks), layout.bos_id, dtype=np.int64)
    gates = np.stack([gate_steps(note.held_frames, layout.n_steps(cap)) for note in notes])
    n_frames = np.full(len(notes), cap)
    codebook = np.arange(layout.n_codebooks)
    read = []
    for step in range(layout.n_steps(cap)):
        read.append(tokens)
        if (step >= n_frames + layout.n_codebooks).all():
            break
        position = np.full(len(notes), step, dtype=np.int32)
        tokens, _ = decoder.step(tokens, gates[:, step], position)
        ended = (tokens[:, 0] == layout.eos_id) & (step < n_frames)
        n_frames = np.where(ended, step, n_frames)
        tokens = np.where(step - codebook >= n_frames[:, None], layout.eos_id, tokens)
        tokens = np.where(step - codebook < 0, layout.bos_id, tokens)
    inputs = np.stack(read, axis=1)
    return [each[: layout.n_steps(int(n))] for each, n in zip(inputs, n_frames, strict=True)]


def read_tokens(config: ModelConfig, note: SampleNote) -> NDArray[np.int64]:
    """Tokens int64 [S, K] that the steps of a given note read."""
    codes = note.codes[: config.max_frames]
    return apply_delay(config.layout.to_tokens(codes, note.pitch), config.layout)[0]


def begin_notes(decoder: GraphDecoder, notes: Sequence[SampleNote]) -> None:
    """Starts these notes, one per row."""
    decoder.begin(
        np.array([note.timbre for note in notes], dtype=np.float32),
        np.array([note.pitch for note in notes], dtype=np.int64),
        np.array([note.velocity for note in notes], dtype=np.float32),
    )


@torch.no_grad()
def _oracle(
    model: NoteTransformer, note: SampleNote, inputs: NDArray[np.int64], gate: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The model's logits [S, K, V], all steps at once and without a cache."""
    logits = model(
        torch.tensor([note.timbre], dtype=torch.float32),
        torch.tensor([note.pitch]),
        torch.tensor([note.velocity], dtype=torch.float32),
        torch.from_numpy(inputs)[None],
        torch.from_numpy(gate)[None],
    )
    return logits[0].numpy()
