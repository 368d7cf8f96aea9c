"""What the host does for each note in a step while the graphs compute nothing: Python's and numpy's part.

Examples:
    python tests/benchmarks/host.py            1 to 1024 rows; a minute or so
    python tests/benchmarks/host.py --quick
    python tests/benchmarks/host.py --rows 1 1024 --codebooks 8

Every slot has a note of about a hundred frames, and others wait. `engine` is the engine over a runner that
draws at once: admission, the delay pattern, ends of notes, deliveries. `engine_and_runner` has the product's
own runner over sessions that do nothing: what a step reads is put where a graph would read it, and uniforms
are made for each new note. Both in microseconds of the thread's processor time for each row and step, the
fastest of the rounds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt
from benchmarks.harness.report import Bar, Report, print_table

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.memory import HOST
from timbrel_server.decoder.runner import Runner, bucket_sizes
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine import Engine
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import NoteRequest, RequestHandle
from timbrel_server.engine.request_queue import RequestQueue
from timbrel_server.engine.slots import StepInput

ROWS = (1, 4, 16, 64, 256, 1024)
BOS, EOS = 1024, 1025
MAX_FRAMES = 228
STEPS_BETWEEN_ENDS = 100
"""Of one row's notes; the rows end their notes at different steps."""
BLOCK = 32
"""Steps that are timed together."""


class NullRunner:
    """Draws the same tokens in every step, but for the rows whose note ends."""

    can_move = True

    def __init__(self, n_rows: int, n_codebooks: int) -> None:
        self.buckets: Sequence[int] = bucket_sizes(n_rows, finely=True)
        self._drawn = itertools.cycle(drawn_with_ends(n_rows, n_codebooks))

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        """Nothing to prepare."""

    def move(self, source: int, target: int) -> None:
        """Nothing to move."""

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        return next(self._drawn)[: len(given.positions)]


def drawn_with_ends(n_rows: int, n_codebooks: int) -> list[npt.NDArray[np.int64]]:
    """Tokens [rows, K] of each step until they come again."""
    drawn = np.full((STEPS_BETWEEN_ENDS, n_rows, n_codebooks), 5)
    for step, tokens in enumerate(drawn):
        tokens[-step % STEPS_BETWEEN_ENDS :: STEPS_BETWEEN_ENDS, 0] = EOS
    return list(drawn)


class NullSession:
    """A graph without inputs or outputs; also its binding."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: []

    def io_binding(self) -> NullSession:
        return self


class HostRunner(Runner):
    """The product's runner, over graphs that do nothing."""

    def __init__(self, n_rows: int, n_codebooks: int) -> None:
        sessions = SimpleNamespace(
            memory=HOST, captures=False, decoder=NullSession(), condition_encoder=NullSession()
        )
        manifest = pb.Manifest()
        manifest.codec.n_codebooks = n_codebooks
        manifest.model.bos_id, manifest.model.vocabulary_size = BOS, EOS + 1
        manifest.model.max_positions = MAX_FRAMES + n_codebooks
        super().__init__(cast(DecoderSessions, sessions), manifest, n_rows, fast=True)
        self._drawn = itertools.cycle(drawn_with_ends(n_rows, n_codebooks))

    def _encode(self, first_row: int, n_rows: int) -> None:
        """No conditions are encoded."""

    def _run(self, n_rows: int, first_row: int = 0) -> None:
        self._next_tokens[:] = next(self._drawn)


class FullEngine:
    """An engine whose slots are all in use, stepped by hand."""

    def __init__(self, runner: Any, n_codebooks: int, frames_ahead: int | None) -> None:
        layout = TokenLayout(n_codebooks, BOS, EOS, MAX_FRAMES, codes_per_semitone=12, code_offset=700)
        self._queue = RequestQueue(1 << 20, 1 << 30)
        self._frames_ahead = frames_ahead
        self._engine = Engine(runner, layout, self._queue, post=lambda deliveries: None)
        self._n_rows: int = runner.buckets[-1]
        for _ in range(2 * STEPS_BETWEEN_ENDS // BLOCK):
            self.microseconds()

    def microseconds(self) -> float:
        """Of a row and step, in a block of them."""
        with self._queue.changed:
            while len(self._queue) < 2 * self._n_rows:
                request = NoteRequest(
                    *((0.0, 0.0), 60, 100), 80, len(self._queue), frames_ahead=self._frames_ahead
                )
                self._queue.put(RequestHandle(request, lambda delivery: None))
        started = time.thread_time()
        for _ in range(BLOCK):
            self._engine.step()
        seconds: float = time.thread_time() - started
        return 1e6 * seconds / (BLOCK * self._n_rows)


def measure(n_rows: int, n_codebooks: int, n_rounds: int, *, live: bool) -> dict[str, float]:
    """Microseconds of a row and step."""
    runners = {"engine": NullRunner, "engine_and_runner": HostRunner}
    ahead = MAX_FRAMES if live else None  # so far ahead that none waits for its tick
    engines = {
        name: FullEngine(make(n_rows, n_codebooks), n_codebooks, ahead) for name, make in runners.items()
    }
    blocks = range(2 * STEPS_BETWEEN_ENDS // BLOCK)  # in which about two notes a row begin and end
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(n_rounds):
        for name, engine in engines.items():
            found[name].append(sum(engine.microseconds() for _ in blocks) / len(blocks))
    return {name: round(min(runs), 4) for name, runs in found.items()}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer rounds")
    add("--rows", nargs="+", type=int, default=list(ROWS), help="notes at once (default: 1 to 1024)")
    add("--live", action="store_true", help="notes that are played live, each frame delivered by itself")
    add("--codebooks", type=int, default=3, help="codes of a frame (default %(default)s)")
    return parser.parse_args(argv)


def main() -> None:
    """Measures, prints a table and the line of JSON."""
    args = parse_arguments()
    report = Report("host", quick=args.quick)
    seconds = 0.3 if args.quick else 3.0  # at about 20 microseconds a step and 1 a row
    steps = {n: 4 * STEPS_BETWEEN_ENDS * (20e-6 + n * 1e-6) for n in args.rows}
    n_rounds = {n: max(2, int(seconds / steps[n])) for n in args.rows}
    found = {n: measure(n, args.codebooks, n_rounds[n], live=args.live) for n in args.rows}
    print_table(
        ["rows", "engine us", "engine and runner us"],
        [[n, each["engine"], each["engine_and_runner"]] for n, each in found.items()],
    )
    figures = {name: {str(n): each[name] for n, each in found.items()} for name in next(iter(found.values()))}
    largest = max(found)
    bar = Bar(
        f"engine, microseconds a row and step, {largest} rows", found[largest]["engine"], 1.0, at_most=True
    )
    report.finish(
        {"codebooks": args.codebooks, "live": args.live, "microseconds_a_row_and_step": figures}, [bar]
    )


if __name__ == "__main__":
    main()
