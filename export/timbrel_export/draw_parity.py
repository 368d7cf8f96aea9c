"""Whether a decode graph draws the tokens that its own logits ask for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from timbrel_export.errors import ParityError
from timbrel_export.graph_decoder import GraphDecoder
from timbrel_export.parity import begin_notes, read_tokens
from timbrel_export.sample_note import SampleNote
from timbrel_training.model.sampling import MAX_TOP_K, sample

SETTINGS = (
    (1.0, MAX_TOP_K, 0.95),
    (1.0, MAX_TOP_K, 1.0),
    (2.0, MAX_TOP_K, 1.0),
    (2.0, 40, 0.9),
    (0.5, 3, 1.0),
)
"""Temperature, top-k and top-p of the steps, in turn."""
N_STEPS = 100
MAX_OTHER_SHARE = 0.005
"""Of the draws, how many may differ: the uniform fell between two sums that round otherwise."""


def check_draw(decoder: GraphDecoder, notes: Sequence[SampleNote], graph: str) -> None:
    """Compares what a graph draws, on the way through these notes, with what `sample` draws of its logits.

    Raises:
        ParityError: too many tokens differ.
    """
    random = np.random.default_rng(0)
    given = [read_tokens(decoder.config, note) for note in notes]
    begin_notes(decoder, notes)
    n_drawn = n_other = 0
    for step, (temperature, top_k, top_p) in zip(range(N_STEPS), itertools.cycle(SETTINGS), strict=False):
        at = np.array([min(step, len(tokens) - 1) for tokens in given])
        read = np.stack([tokens[place] for tokens, place in zip(given, at, strict=True)])
        uniforms = random.random(read.shape, dtype=np.float32)
        drawn, logits = decoder.step(
            read,
            np.ones(len(notes), dtype=np.int64),
            at.astype(np.int32),
            uniforms=uniforms,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        expected = sample(
            torch.from_numpy(logits),
            torch.from_numpy(uniforms),
            torch.full((len(notes),), temperature),
            torch.full((len(notes),), top_k),
            torch.full((len(notes),), top_p),
        )
        n_other += int((expected.numpy() != drawn).sum())
        n_drawn += drawn.size
    if n_other > MAX_OTHER_SHARE * n_drawn:
        raise ParityError(f"{graph}: {n_other} of {n_drawn} draws are not those that its logits ask for")
