"""Holds decode graphs against the model: their logits, how far lower precision strays, and what they draw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from timbrel_export import interface
from timbrel_export.errors import ParityError
from timbrel_export.sample_note import SampleNote, note_logits, note_tokens
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.model.sampling import GREEDY, MAX_TOP_K, Sampling, sample
from timbrel_training.tokens.delay import gate_steps

CACHE_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8}

Arrays = dict[str, NDArray[Any]]
Logits = NDArray[np.float32]

MAX_LOGIT_DIFFERENCE = 1e-3
"""Largest difference of any logit, in fp32."""
MIN_MARGIN = 2e-3
"""If the oracle's two best candidates lie further apart, the graph must choose the same."""
MAX_MEAN_KL = 0.05
"""Nats per token. A graph of lower precision beyond it is broken, not merely less exact."""
MAX_OTHER_SHARE = 0.005
"""Share of the draws that may differ: the uniform fell between two sums that round otherwise."""

DRAWS = (
    Sampling(1.0, MAX_TOP_K, 0.95),
    Sampling(1.0, MAX_TOP_K, 1.0),
    Sampling(2.0, MAX_TOP_K, 1.0),
    Sampling(2.0, 40, 0.9),
    Sampling(0.5, 3, 1.0),
    Sampling(0.6, MAX_TOP_K, 0.95),
)
"""Draws are compared with these settings, step by step in turn."""
N_DRAW_STEPS = 100


class GraphDecoder:
    """Runs a bundle's decode graph over rows that stand at different positions, as a server's engine does.

    It holds the keys and values of all rows' notes; `step` moves all of them on by one position.
    """

    def __init__(
        self, condition: ort.InferenceSession, decoder: ort.InferenceSession, config: ModelConfig
    ) -> None:
        self.condition = condition
        self.decoder = decoder
        self.config = config
        types = {each.name: each.type for each in decoder.get_inputs()}
        self._dtype = CACHE_TYPES[types["self_k_0"]]
        self._caches: Arrays = {}
        self.memories: Arrays = {}
        """The conditions as the decode graph reads them, by input name."""

    def begin(
        self, timbre: NDArray[np.float32], pitch: NDArray[np.int64], velocity: NDArray[np.float32]
    ) -> None:
        """Starts one note per row: timbre [B, 2], pitch [B], velocity [B].

        The caches hold rubbish, as those of a slot that was used before do.
        """
        config = self.config
        shape = (len(pitch), config.n_kv_heads, config.max_positions, config.width_per_head)
        self._caches = {
            name: np.full(shape, 7.0, dtype=self._dtype)
            for name in interface.cache_names(config.n_decoder_layers)
        }
        names = interface.memory_names(config)
        given = {"timbre": timbre, "pitch": pitch, "velocity": velocity}
        self.memories = dict(zip(names, self.condition.run(names, given), strict=True))

    def step(
        self,
        tokens: NDArray[np.int64],
        gate: NDArray[np.int64],
        position: NDArray[np.int32],
        *,
        uniforms: NDArray[np.float32] | None = None,
        sampling: Sampling = GREEDY,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Next tokens [B, K] and logits [B, K, V] of tokens [B, K], gate [B] and position [B]."""
        drawn_with = zip(interface.SAMPLING_INPUTS, sampling.rows(len(tokens)), strict=True)
        given: Arrays = {
            "tokens": tokens,
            "gate": gate,
            "seqlens_k": position,
            "uniforms": np.full(tokens.shape, 0.5, dtype=np.float32) if uniforms is None else uniforms,
            **{name: tensor.numpy() for name, tensor in drawn_with},
        }
        written = [f"{name}_out" for name in self._caches]
        next_tokens, logits, *caches = self.decoder.run(
            ["next_tokens", "logits", *written], {**given, **self._caches, **self.memories}
        )
        self._caches = dict(zip(self._caches, caches, strict=True))
        return next_tokens, logits


@dataclass
class DecoderParity:
    """Findings on a graph in fp32: every logit and every token has to be the oracle's."""

    max_logit_difference: float = 0.0
    n_tokens: int = 0
    n_flips_outside_margin: int = 0
    n_flips_within_margin: int = 0
    flips: list[str] = field(default_factory=list)
    """The places of the first flips outside of the margin."""

    def add(self, where: str, logits: Logits, tokens: NDArray[np.int64], oracle: Logits) -> None:
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


@dataclass
class PrecisionParity:
    """Findings on a graph of lower precision: how far it strays from the oracle.

    Measured is the Kullback-Leibler divergence of its distributions from the oracle's, in nats per token.
    """

    total: float = 0.0
    n_tokens: int = 0

    @property
    def mean_kl(self) -> float:
        """The mean over all tokens compared."""
        return self.total / max(self.n_tokens, 1)

    def add(self, where: str, logits: Logits, tokens: NDArray[np.int64], oracle: Logits) -> None:
        """Compares one note: the graph's logits [S, K, V] with the oracle's."""
        if not np.isfinite(logits).all():
            raise ParityError(f"{where}: the graph's logits are not finite")
        wanted, found = _log_softmax(oracle), _log_softmax(logits)
        self.total += float((np.exp(wanted) * (wanted - found)).sum())
        self.n_tokens += tokens.size

    def check(self, graph: str) -> None:
        """Raises ParityError where the graph may not ship."""
        if not self.mean_kl <= MAX_MEAN_KL:
            raise ParityError(
                f"{graph}: strays from the oracle by {self.mean_kl:.3g} nats per token, "
                f"allowed are {MAX_MEAN_KL:g}"
            )


F = TypeVar("F", DecoderParity, PrecisionParity)


def compare_decoder(
    model: NoteTransformer, decoder: GraphDecoder, notes: Sequence[SampleNote], parity: F
) -> F:
    """Compares a decode graph with the model, teacher-forced on given notes, then on its own output.

    All notes run as rows of one batch, each starting three steps after the one above it. Returns `parity`.
    """
    given = [note_tokens(model.config, note) for note in notes]
    _compare(parity, "sample note", model, decoder, notes, given)
    written = _write_greedily(decoder, notes)
    _compare(parity, "own output", model, decoder, notes, written)
    return parity


def check_draw(decoder: GraphDecoder, notes: Sequence[SampleNote], graph: str) -> None:
    """Compares what a graph draws, on the way through these notes, with what `sample` draws of its logits.
    Raises ParityError: too many tokens differ."""
    random = np.random.default_rng(0)
    given = [note_tokens(decoder.config, note) for note in notes]
    _begin_notes(decoder, notes)
    n_drawn = n_other = 0
    held = np.arange(len(notes)) % 2 == 0
    gate = held * decoder.config.release_frames
    for step, sampling in zip(range(N_DRAW_STEPS), itertools.cycle(DRAWS), strict=False):
        at = np.array([min(step, len(tokens) - 1) for tokens in given])
        read = np.stack([tokens[place] for tokens, place in zip(given, at, strict=True)])
        uniforms = random.random(read.shape, dtype=np.float32)
        drawn, logits = decoder.step(read, gate, at.astype(np.int32), uniforms=uniforms, sampling=sampling)
        expected = sample(
            torch.from_numpy(logits),
            torch.from_numpy(uniforms),
            torch.from_numpy(held),
            *sampling.rows(len(notes)),
        )
        n_other += int((expected.numpy() != drawn).sum())
        n_drawn += drawn.size
    if n_other > MAX_OTHER_SHARE * n_drawn:
        raise ParityError(f"{graph}: {n_other} of {n_drawn} draws are not those that its logits ask for")


def _compare(
    parity: DecoderParity | PrecisionParity,
    what: str,
    model: NoteTransformer,
    decoder: GraphDecoder,
    notes: Sequence[SampleNote],
    inputs: Sequence[NDArray[np.int64]],
) -> None:
    _begin_notes(decoder, notes)
    shape = (model.config.n_codebooks, model.config.layout.vocabulary_size)
    logits = [np.zeros((len(each), *shape), dtype=np.float32) for each in inputs]
    tokens = [np.zeros_like(each) for each in inputs]
    counted = model.config.release_frames
    gates = [
        gate_steps(note.held_frames, len(each), counted) for note, each in zip(notes, inputs, strict=True)
    ]
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
        parity.add(f"{what} {row}", logits[row], tokens[row], note_logits(model, note, inputs[row]))


def _write_greedily(decoder: GraphDecoder, notes: Sequence[SampleNote]) -> list[NDArray[np.int64]]:
    """Has the graph write on from its own tokens: int64 [S, K] that each note's steps read."""
    layout, cap = decoder.config.layout, decoder.config.max_frames
    _begin_notes(decoder, notes)
    tokens = np.full((len(notes), layout.n_codebooks), layout.bos_id, dtype=np.int64)
    counted = decoder.config.release_frames
    gates = np.stack([gate_steps(note.held_frames, layout.n_steps(cap), counted) for note in notes])
    n_frames = np.full(len(notes), cap)
    delays = layout.codebook_delay * np.arange(layout.n_codebooks)
    read = []
    for step in range(layout.n_steps(cap)):
        read.append(tokens)
        if (step >= n_frames + layout.last_delay).all():
            break
        position = np.full(len(notes), step, dtype=np.int32)
        tokens, _ = decoder.step(tokens, gates[:, step], position)
        ended = (tokens[:, 0] == layout.eos_id) & (step < n_frames)
        n_frames = np.where(ended, step, n_frames)
        tokens = np.where(step - delays >= n_frames[:, None], layout.eos_id, tokens)
        tokens = np.where(step - delays < 0, layout.bos_id, tokens)
    inputs = np.stack(read, axis=1)
    return [each[: layout.n_steps(int(n))] for each, n in zip(inputs, n_frames, strict=True)]


def _begin_notes(decoder: GraphDecoder, notes: Sequence[SampleNote]) -> None:
    """Starts these notes, one per row."""
    decoder.begin(
        np.array([note.timbre for note in notes], dtype=np.float32),
        np.array([note.pitch for note in notes], dtype=np.int64),
        np.array([note.velocity for note in notes], dtype=np.float32),
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)
