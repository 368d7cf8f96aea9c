"""How well a runner agrees: with the model in PyTorch, with itself on another path, and between batch sizes.

All of it goes through the runner's own bindings, as a server's steps do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.harness.our_step import step_at
from recording_runner import RecordedNote, RecordingRunner

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.request_fields import DEFAULT_SAMPLING, SamplingSettings
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.request import NoteRequest
from timbrel_training.model import NoteTransformer

GREEDY = SamplingSettings(temperature=0.0, top_k=1, top_p=1.0)


@dataclass(frozen=True)
class Agreement:
    """Agreement of a graph with the model over all tokens of some notes, teacher-forced."""

    n_tokens: int
    mean_kl: float
    """Nats per token, of the graph's distribution from the model's."""
    agreement: float
    """Share of tokens whose likeliest value is the same."""
    max_logit_difference: float


@dataclass(frozen=True)
class Written:
    """Notes that a runner wrote: what each step read, and what it gave."""

    requests: list[NoteRequest]
    read: npt.NDArray[np.int64]
    """[B, S, K]."""
    notes: list[RecordedNote]
    buckets: list[int]

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """[B, S, K, V]."""
        return np.stack([note.logits for note in self.notes])


def write_notes(
    bundle: Bundle,
    sessions: DecoderSessions,
    n_notes: int,
    n_steps: int,
    sampling: SamplingSettings = DEFAULT_SAMPLING,
) -> Written:
    """Lets a runner write random notes, keys held, all in one batch."""
    random, ranges = np.random.default_rng(0), bundle.manifest.ranges
    requests = [
        NoteRequest(
            timbre=tuple(random.uniform(-0.7, 0.7, 2).tolist()),
            pitch=int(random.integers(ranges.pitch_min, ranges.pitch_max + 1)),
            velocity=int(random.integers(ranges.velocity_min, ranges.velocity_max + 1)),
            held_frames=n_steps,
            seed=seed,
            sampling=sampling,
        )
        for seed in range(n_notes)
    ]
    n_codebooks, bos = bundle.manifest.codec.n_codebooks, bundle.manifest.model.bos_id
    runner = RecordingRunner(sessions, bundle.manifest, n_notes)
    runner.warm_up()
    runner.admit(list(enumerate(requests)))
    read = np.full((n_notes, n_steps + 1, n_codebooks), bos)
    for step in range(n_steps):
        drawn = runner.step(step_at(read[:, step], step))
        begun = min(step + 1, n_codebooks)  # of the delay pattern
        read[:, step + 1, :begun] = drawn[:, :begun]
    notes = [runner.take(request) for request in requests]
    return Written(requests, read[:, :-1], notes, list(runner.buckets))


@torch.inference_mode()
def compare(model: NoteTransformer, written: Written) -> Agreement:
    """Asks the model, its weights those of the bundle in fp32, what it thinks of each step."""
    given = (
        np.array([request.timbre for request in written.requests], dtype=np.float32),
        np.array([request.pitch for request in written.requests]),
        np.array([request.velocity for request in written.requests], dtype=np.float32),
        written.read,
        np.ones(written.read.shape[:2], dtype=np.int64),
    )
    wanted = model(*(torch.from_numpy(each) for each in given)).numpy()
    return _compare_logits(wanted, written.logits)


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
