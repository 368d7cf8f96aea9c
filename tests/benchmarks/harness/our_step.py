"""Our step as the engine takes it: through the runner, with its bindings, its uniforms and its checks.

Steps read other tokens and uniforms each time, since not every draw takes as long as every other.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.harness.timing import Work

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import DECODER_STEP_PORTABLE
from timbrel_bundle.request_fields import SamplingSettings
from timbrel_bundle.runtime import resolve_provider, session_options
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import FP32, DecoderSessions, open_sessions
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.slots import StepInput

SAMPLING = SamplingSettings(temperature=1.0, top_k=256, top_p=0.95)
"""Every side draws with these."""
NOTE = NoteRequest((0.1, 0.2), pitch=60, velocity=100, held_frames=10_000, seed=7, sampling=SAMPLING)

N_STEPS = 128
"""Steps until the same come again."""


def open_at(bundle: Bundle, n_threads: int, precision: str = FP32, provider: str = "cpu") -> DecoderSessions:
    """`open_sessions`, on the CPU and at fp32 unless told otherwise."""
    return open_sessions(bundle, provider, n_threads, precision)


def open_portable(bundle: Bundle, n_threads: int) -> DecoderSessions:
    """The step in operators of the ONNX standard alone, on the CPU."""
    decoder = bundle.session(DECODER_STEP_PORTABLE, resolve_provider("cpu"), session_options(n_threads))
    sessions = open_at(bundle, n_threads)
    return dataclasses.replace(sessions, decoder=decoder, decoder_graph=DECODER_STEP_PORTABLE)


def open_observed(
    bundle: Bundle, n_threads: int, precision: str, folder: Path
) -> tuple[DecoderSessions, Path]:
    """The decode graph with onnxruntime's profiler on; also the graph as onnxruntime runs it.

    Returns:
        the sessions, and the path of the optimized graph.
    """
    sessions = open_at(bundle, n_threads, precision)
    options: Any = session_options(n_threads)
    optimized = folder / "optimized.onnx"
    options.optimized_model_filepath = str(optimized)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    decoder = bundle.session(sessions.decoder_graph, resolve_provider("cpu"), options)
    return dataclasses.replace(sessions, decoder=decoder), optimized


@dataclass(frozen=True)
class HostInput:
    """The tokens and uniforms of one step, as a host holds them."""

    tokens: list[list[int]]
    """[B, K]."""
    uniforms: npt.NDArray[np.float32]
    """[B, K], known as soon as the note is."""


def step_inputs(n_rows: int, n_codebooks: int, codebook_size: int) -> Iterator[HostInput]:
    """Yields inputs without end, the same for whoever asks."""
    random = np.random.default_rng(0)
    shape = (n_rows, n_codebooks)
    return itertools.cycle(
        [
            HostInput(
                random.integers(0, codebook_size, shape).tolist(), random.random(shape, dtype=np.float32)
            )
            for _ in range(N_STEPS)
        ]
    )


class OurStep:
    """One step of the first `n_rows` rows of a runner, all at one position."""

    def __init__(
        self,
        sessions: DecoderSessions,
        bundle: Bundle,
        n_slots: int,
        *,
        fast: bool = False,
    ) -> None:
        self.runner = Runner(sessions, bundle.manifest, n_slots, fast=fast)
        self.runner.warm_up()
        self.runner.admit([(row, NOTE) for row in range(n_slots)])
        codec = bundle.manifest.codec
        self._n_codebooks, self._codebook_size = codec.n_codebooks, codec.codebook_size

    def step(self, tokens: npt.NDArray[np.int64], position: int) -> npt.NDArray[np.int64]:
        """Tokens [B, K] drawn by the first rows with what their note draws with, from tokens [B, K]."""
        return self.runner.step(step_at(tokens, position)).copy()

    def work(self, n_rows: int, position: int) -> Work:
        """Steps of the first rows at this position, each with tokens and uniforms of its own."""
        given = step_inputs(n_rows, self._n_codebooks, self._codebook_size)
        prepared = itertools.cycle(
            [(each.tokens, each.uniforms) for each in itertools.islice(given, N_STEPS)]
        )
        drawn_with = self.runner.note_uniforms[:n_rows, position]

        def work() -> list[list[int]]:
            tokens, drawn_with[:] = next(prepared)
            drawn: list[list[int]] = self.runner.step(step_at(np.array(tokens), position)).tolist()
            return drawn

        return work

    def batch_run(self, n_rows: int) -> int:
        """The batch that a step of so many rows really runs at: batch sizes that would change a note's codes
        are not used."""
        return next(size for size in self.runner.buckets if size >= n_rows)


def step_at(tokens: npt.NDArray[np.int64], position: int) -> StepInput:
    """What a step of these tokens [B, K] reads, all keys held, all rows at one position."""
    n_rows = len(tokens)
    gate = np.ones(n_rows, np.int64)
    return StepInput(gate > 0, np.full(n_rows, position), tokens, gate)
