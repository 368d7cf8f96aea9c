"""`timbrel serve` with a runner that computes nothing: what gRPC and Python alone let through.

python -m benchmarks.harness.null_server --bundle DIR ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import timbrel_server.__main__
import timbrel_server.served_bundles.engine_loader
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.slots import StepInput


class NullRunner:
    """Draws token 0 for everybody at once: notes last until the cap."""

    def __init__(
        self, sessions: DecoderSessions, manifest: pb.Manifest, n_slots: int, *, fast: bool = False
    ) -> None:
        self.buckets: Sequence[int] = [n_slots]
        self.can_move = True
        self._tokens = np.zeros((n_slots, manifest.codec.n_codebooks), np.int64)

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        """Nothing to prepare."""

    def move(self, source: int, target: int) -> None:
        """Nothing to move."""

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        """Token 0 for every row and codebook."""
        return self._tokens[: len(given.positions)]


if __name__ == "__main__":
    vars(timbrel_server.served_bundles.engine_loader)["Runner"] = NullRunner
    sys.exit(timbrel_server.__main__.main())
