"""A process with an engine and nothing around it: what the server's core could do without the server.

python -m benchmarks.harness.bare_engine BUNDLE SLOTS PRECISION
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.harness.our_step import open_at, step_at
from benchmarks.harness.processes import answer
from benchmarks.harness.streams import Deliveries, random_note

from timbrel_bundle.bundle import Bundle
from timbrel_server.decoder.runner import Runner
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import Delivery, RequestHandle
from timbrel_server.served_bundles.served_bundle import token_layout


class BareEngine:
    """Answers how many frames it writes, and how long the steps of a first chunk take."""

    def __init__(self, bundle: Bundle, n_slots: int, precision: str) -> None:
        self._manifest = bundle.manifest
        self._n_slots = n_slots
        self._sessions = open_at(bundle, 1, precision)
        self._runner = Runner(self._sessions, bundle.manifest, n_slots)
        self._random = np.random.default_rng(0)
        self._n_frames = 0

    def __call__(self, what: str, **arguments: Any) -> Any:
        ways: dict[str, Callable[..., Any]] = {"saturate": self.saturate, "first_chunk": self.first_chunk}
        return ways[what](**arguments)

    def saturate(self, seconds: float, shortest: float, longest: float) -> dict[str, float]:
        """Frames per second with twice as many notes asked for as there are slots, always."""
        engine = EnginePool([self._runner], token_layout(self._manifest), 4 * self._n_slots, self._post)
        stopping = threading.Event()

        def ask() -> None:
            note = random_note(self._manifest, self._random, shortest, longest)
            engine.accept(RequestHandle(note, receive))

        def receive(delivery: Delivery) -> None:
            self._n_frames += len(delivery.frames)
            if delivery.finish is not None and not stopping.is_set():
                ask()

        engine.start()
        for _ in range(2 * self._n_slots):
            ask()
        time.sleep(0.2 * seconds)
        started, cpu, frames = time.perf_counter(), time.process_time(), self._n_frames
        time.sleep(seconds)
        elapsed, cpu, frames = (
            time.perf_counter() - started,
            time.process_time() - cpu,
            self._n_frames - frames,
        )
        stopping.set()
        engine.stop()
        return {"frames_per_second": frames / elapsed, "frames_per_cpu_second": frames / cpu}

    def first_chunk(self, n_notes: int) -> float:
        """Milliseconds of a lone note's admission and its steps up to the first whole frame: the median."""
        n_codebooks, bos = self._manifest.codec.n_codebooks, self._manifest.model.bos_id
        found = []
        for _ in range(n_notes):
            note = random_note(self._manifest, self._random, 1.0, 1.0)
            tokens = np.full((1, n_codebooks), bos)
            started = time.perf_counter()
            self._runner.admit([(0, note)])
            for position in range(n_codebooks):
                tokens = self._runner.step(step_at(tokens, position))
            found.append(1e3 * (time.perf_counter() - started))
            time.sleep(0.02)
        return float(np.median(found))

    def _post(self, deliveries: Deliveries) -> None:
        for ticket, delivery in deliveries:
            ticket.receive(delivery)


if __name__ == "__main__":
    answer(BareEngine(Bundle.open(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
