"""Our step as the engine takes it: through the runner, with its bindings, its uniforms and its checks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timbrel_bundle.bundle import Bundle
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine import StepRow
from timbrel_server.engine.request import NoteRequest, SamplingSettings

SAMPLING = SamplingSettings(temperature=1.0, top_k=256, top_p=0.95)
"""What every side draws with."""
NOTE = NoteRequest((0.1, 0.2), pitch=60, velocity=100, held_frames=10_000, seed=7, sampling=SAMPLING)


class OurStep:
    """One step of the first `n_rows` rows of a runner, all at one position."""

    def __init__(self, sessions: DecoderSessions, bundle: Bundle, n_slots: int) -> None:
        self.runner = Runner(sessions, bundle.manifest, n_slots)
        for row in range(n_slots):
            self.runner.admit(row, NOTE)
        self._n_codebooks = bundle.manifest.codec.n_codebooks

    def rows(self, n_rows: int, position: int, token: int = 5) -> list[StepRow]:
        """What a step of these rows reads."""
        return [StepRow(row, position, [token] * self._n_codebooks, True) for row in range(n_rows)]

    def step(self, rows: list[StepRow]) -> npt.NDArray[np.int64]:
        """Tokens [B, K] drawn."""
        return np.asarray(self.runner.step(rows), dtype=np.int64)

    def batch_run(self, n_rows: int) -> int:
        """The batch that a step of so many rows really runs at: batch sizes that would change a note's codes
        are not used."""
        return next(size for size in self.runner.buckets if size >= n_rows)
