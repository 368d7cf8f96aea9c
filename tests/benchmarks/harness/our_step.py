"""Our step as the engine takes it: through the runner, with its bindings, its uniforms and its checks."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from benchmarks.harness.step_inputs import N_STEPS, step_inputs
from benchmarks.harness.timing import Work

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.request_fields import SamplingSettings
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine import StepRow
from timbrel_server.engine.request import NoteRequest

SAMPLING = SamplingSettings(temperature=1.0, top_k=256, top_p=0.95)
"""What every side draws with."""
NOTE = NoteRequest((0.1, 0.2), pitch=60, velocity=100, held_frames=10_000, seed=7, sampling=SAMPLING)


class OurStep:
    """One step of the first `n_rows` rows of a runner, all at one position."""

    def __init__(self, sessions: DecoderSessions, bundle: Bundle, n_slots: int) -> None:
        self.runner = Runner(sessions, bundle.manifest, n_slots)
        for row in range(n_slots):
            self.runner.admit(row, NOTE)
        codec = bundle.manifest.codec
        self._n_codebooks, self._codebook_size = codec.n_codebooks, codec.codebook_size

    def step(self, tokens: npt.NDArray[np.int64], position: int) -> npt.NDArray[np.int64]:
        """Tokens [B, K] drawn by the first rows with what their note draws with, from tokens [B, K]."""
        return np.asarray(self.runner.step(_rows(tokens.tolist(), position)), dtype=np.int64)

    def work(self, n_rows: int, position: int) -> Work:
        """Steps of the first rows at this position, each with tokens and uniforms of its own."""
        given = step_inputs(n_rows, self._n_codebooks, self._codebook_size)
        prepared = itertools.cycle(
            [(_rows(each.tokens, position), each.uniforms) for each in itertools.islice(given, N_STEPS)]
        )
        drawn_with = self.runner.note_uniforms[:n_rows, position]

        def work() -> list[list[int]]:
            rows, drawn_with[:] = next(prepared)
            return self.runner.step(rows)

        return work

    def batch_run(self, n_rows: int) -> int:
        """The batch that a step of so many rows really runs at: batch sizes that would change a note's codes
        are not used."""
        return next(size for size in self.runner.buckets if size >= n_rows)


def _rows(tokens: list[list[int]], position: int) -> list[StepRow]:
    return [StepRow(row, position, read, True) for row, read in enumerate(tokens)]
