"""Whether a decode graph says what the model does: teacher-forced, against PyTorch in fp32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from timbrel_bundle.bundle import Bundle
from timbrel_export.parity import GraphDecoder
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_training.model import NoteTransformer


@dataclass(frozen=True)
class Agreement:
    """How near a graph comes to the model, over all tokens of some notes."""

    n_tokens: int
    mean_kl: float
    """Nats per token, of the graph's distribution from the model's."""
    agreement: float
    """Share of tokens whose likeliest value is the same."""
    max_logit_difference: float


@torch.inference_mode()
def compare(
    model: NoteTransformer, bundle: Bundle, sessions: DecoderSessions, n_notes: int, n_steps: int
) -> Agreement:
    """Lets the graph write notes, step by step, and asks the model what it thinks of each step.

    Args:
        model: the weights of the bundle, in fp32.
    """
    config, random = model.config, np.random.default_rng(0)
    timbre = random.uniform(-0.7, 0.7, (n_notes, 2)).astype(np.float32)
    ranges = bundle.manifest.ranges
    pitch = random.integers(ranges.pitch_min, ranges.pitch_max + 1, n_notes)
    velocity = random.integers(ranges.velocity_min, ranges.velocity_max + 1, n_notes).astype(np.float32)
    gate = np.ones((n_notes, n_steps), dtype=np.int64)
    tokens = np.full((n_notes, n_steps + 1, config.n_codebooks), bundle.manifest.model.bos_id)
    decoder = GraphDecoder(sessions.condition_encoder, sessions.decoder, config)
    decoder.begin(timbre, pitch, velocity)
    logits = []
    for step in range(n_steps):
        drawn, scores = decoder.step(
            tokens[:, step],
            gate[:, step],
            np.full(n_notes, step, np.int32),
            uniforms=random.uniform(0.01, 0.99, (n_notes, config.n_codebooks)).astype(np.float32),
            temperature=1.0,
        )
        logits.append(scores)
        begun = min(step + 1, config.n_codebooks)  # of the delay pattern
        tokens[:, step + 1, :begun] = drawn[:, :begun]
    given = (timbre, pitch, velocity, tokens[:, :-1], gate)
    wanted = model(*(torch.from_numpy(each) for each in given)).numpy()
    return _compare_logits(wanted, np.stack(logits, axis=1).astype(np.float32))


def _compare_logits(wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> Agreement:
    is_allowed = wanted > -1e8  # what a head may not choose is no token
    log_wanted, log_found = _log_softmax(wanted), _log_softmax(found)
    divergence = np.where(is_allowed, np.exp(log_wanted) * (log_wanted - log_found), 0.0).sum(axis=-1)
    return Agreement(
        n_tokens=divergence.size,
        mean_kl=float(divergence.mean()),
        agreement=float((wanted.argmax(axis=-1) == found.argmax(axis=-1)).mean()),
        max_logit_difference=float(np.abs(wanted - found)[is_allowed].max()),
    )


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
