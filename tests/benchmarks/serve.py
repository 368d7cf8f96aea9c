"""The real gRPC server under load from other processes, and beside the bare engine on the same core.

Examples:
    python tests/benchmarks/serve.py                        the bundle that ships; three minutes or so
    python tests/benchmarks/serve.py --quick
    python tests/benchmarks/serve.py --slots 32 --loads 0.5 0.9 --clients 2
    python tests/benchmarks/serve.py --render-only          only how fast `timbrel.Client` renders
    python tests/benchmarks/serve.py --render-only --server gpu-box:50051 --concurrency 64 256

The server (`timbrel serve`, one thread a step) runs on one core, the load on another. Measured:
idle      first-chunk latency of lone notes, against the time that their admission and steps take in process
saturated frames per second with more notes asked for than there are slots, by a call for each note and by
          GenerateBatch, against the bare engine, in turn
loaded    notes that come at random (Poisson), at shares of what the saturated server writes, whatever becomes
          of those before: notes per second, first-chunk latency, and the streams that sound at once while no
          chunk is later than 300 ms after its time
rendered  notes per second from the call of `timbrel.Client` to decoded audio, one after another and many at
          once, with a private server that has all cores; its times are wall-clock
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from benchmarks.harness.processes import BenchServer, HelperProcess, cpu_seconds
from benchmarks.harness.report import Bar, Report, print_table, usable_cores

import timbrel
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError
from timbrel_server.config import default_bundle_path

LOADS = (0.25, 0.5, 0.75, 0.9)
REPORTED_LOAD = 0.5
"""The share of saturation whose latencies `first_chunk_ms` gives."""
CALLS, CALLS_BATCHED = "saturate", "saturate_by_batch"
"""The ways to saturate the server: a call for each note, which streams; one for all, each note sent whole."""
HELD = {"shortest": 0.5, "longest": 2.0}
"""Seconds for which notes are held."""
OVERHEAD_MS = 10.0
"""An idle server's first chunk may come this much later than 1.5 times its compute."""


class Bench:
    """The server, the load and the bare engine, each in its place."""

    def __init__(self, args: argparse.Namespace) -> None:
        cores = usable_cores()
        self.server_core, self.load_core = cores[0], cores[-1]
        bundle, slots = str(args.bundle), str(args.slots)
        self.slots = args.slots
        precision = [] if args.precision == "fp32" else ["--precision", args.precision]
        self.server = BenchServer(
            args.bundle,
            {self.server_core},
            "--threads",
            "1",
            "--slots",
            slots,
            "--provider",
            "cpu",
            *precision,
        )
        self.engine = HelperProcess(
            "benchmarks.harness.bare_engine", [bundle, slots, args.precision], {self.server_core}
        )
        self.loads = [
            HelperProcess("benchmarks.harness.load", [self.server.address, str(seed)], {self.load_core})
            for seed in range(args.clients)
        ]

    def close(self) -> None:
        """Ends all processes."""
        for process in (*self.loads, self.engine):
            process.close()
        self.server.close()

    def idle(self, n_notes: int, n_rounds: int) -> dict[str, float]:
        """First chunks of lone notes, and their compute, in turn."""
        self.loads[0].ask(what="one_by_one", n_notes=3)
        self.engine.ask(what="first_chunk", n_notes=3)
        latencies, computes = [], []
        for _ in range(n_rounds):
            found = self.loads[0].ask(what="one_by_one", n_notes=n_notes)["first_chunk_ms"]
            latencies.append(statistics.median(found))
            computes.append(self.engine.ask(what="first_chunk", n_notes=n_notes))
        ratio = statistics.median(a / b for a, b in zip(latencies, computes, strict=True))
        return {
            "idle_first_chunk_ms": round(statistics.median(latencies), 3),
            "idle_compute_ms": round(statistics.median(computes), 3),
            "idle_first_chunk_over_compute": round(ratio, 3),
        }

    def saturated(self, seconds: float, n_rounds: int) -> dict[str, float]:
        """Frames per second of the server and of the bare engine, in turn."""
        rounds = [
            (
                self._engine_round(seconds),
                self._server_round(seconds),
                self._server_round(seconds, CALLS_BATCHED),
            )
            for _ in range(n_rounds)
        ]
        engine, server, batched = zip(*rounds, strict=True)
        wall, cpu = "frames_per_second", "frames_per_cpu_second"
        return {
            "server_frames_per_second": _median(server, wall),
            "batch_frames_per_second": _median(batched, wall),
            "engine_frames_per_second": _median(engine, wall),
            "server_over_engine": _ratio(server, engine, wall),
            "server_over_engine_per_cpu_second": _ratio(server, engine, cpu),
            "batch_over_engine": _ratio(batched, engine, wall),
            "batch_over_engine_per_cpu_second": _ratio(batched, engine, cpu),
        }

    def _engine_round(self, seconds: float) -> dict[str, float]:
        found: dict[str, float] = self.engine.ask(what="saturate", seconds=seconds, **HELD)
        return found

    def _server_round(self, seconds: float, what: str = CALLS) -> dict[str, float]:
        before = cpu_seconds(self.server.pid)
        n_each = -(-2 * self.slots // len(self.loads))
        found = self._ask_all(what=what, n_at_once=n_each, seconds=seconds, **HELD)
        rate = sum(each["frames_per_second"] for each in found)
        # Frames of the warm-up before the window are not counted, its processor time is: 1.2 windows of it.
        spent = (cpu_seconds(self.server.pid) - before) / 1.2
        return {"frames_per_second": rate, "frames_per_cpu_second": rate * seconds / spent}

    def loaded(self, rate: float, seconds: float) -> dict[str, Any]:
        """Notes at random, `rate` a second."""
        found = self._ask_all(what="poisson", rate=rate / len(self.loads), seconds=seconds, **HELD)
        latencies = [ms for each in found for ms in each["first_chunk_ms"]]
        elapsed = max(each["seconds"] for each in found)
        quantiles = np.quantile(latencies, [0.5, 0.95, 0.99]) if latencies else [np.nan] * 3
        names = ("p50", "p95", "p99")
        return {
            "notes_per_second": round(sum(each["notes"] for each in found) / elapsed, 2),
            "refused": sum(each["refused"] for each in found),
            "late_chunks": sum(each["late"] for each in found),
            "frames_per_second": round(sum(each["frames"] for each in found) / elapsed, 1),
            "first_chunk_ms": {name: round(float(ms), 2) for name, ms in zip(names, quantiles, strict=True)},
        }

    def _ask_all(self, **question: Any) -> list[Any]:
        for load in self.loads:
            load.send(**question)
        return [load.read() for load in self.loads]


def _median(rounds: Sequence[Mapping[str, float]], name: str) -> float:
    return round(statistics.median(each[name] for each in rounds), 1)


def _ratio(server: Sequence[Mapping[str, float]], engine: Sequence[Mapping[str, float]], name: str) -> float:
    """The median of the rounds' own ratios."""
    return round(statistics.median(s[name] / e[name] for s, e in zip(server, engine, strict=True)), 3)


@dataclass(frozen=True)
class Rendered:
    """Notes rendered so many at once."""

    concurrency: int
    notes: int
    median_seconds: float
    """The time from asking for a note to holding its audio."""
    slowest_seconds: float
    notes_per_second: float
    times_real_time: float
    """Seconds of audio per second of wall-clock time, all notes together."""


def timed_note(client: timbrel.Client, index: int, hold: float) -> tuple[float, float]:
    """Renders the index-th note of a fixed walk over the map; returns (seconds taken, seconds of audio)."""
    pitch, timbre = 48 + (7 * index) % 36, (0.1 * (index % 7) - 0.3, 0.1 * (index % 5) - 0.2)
    start = time.perf_counter()
    note = client.generate(timbre=timbre, pitch=pitch, velocity=100, seconds=hold, seed=index)
    return time.perf_counter() - start, len(note.audio) / note.sample_rate


def render_at(client: timbrel.Client, concurrency: int, n_notes: int, hold: float) -> Rendered:
    """Renders n_notes, at most `concurrency` of them at a time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        times, lengths = zip(*pool.map(lambda i: timed_note(client, i, hold), range(n_notes)), strict=True)
    elapsed = time.perf_counter() - start
    return Rendered(
        concurrency=concurrency,
        notes=n_notes,
        median_seconds=round(statistics.median(times), 4),
        slowest_seconds=round(max(times), 4),
        notes_per_second=round(n_notes / elapsed, 3),
        times_real_time=round(sum(lengths) / elapsed, 3),
    )


def render(args: argparse.Namespace) -> dict[str, Any]:
    """Renders with a client of the server asked for, by default a private one; prints a table."""
    bundle = None if args.server else args.bundle
    with timbrel.Client(args.server, bundle=bundle) as client:
        timed_note(client, 0, args.hold)  # the first note also starts the server and loads the codec
        results = [asdict(render_at(client, n, args.notes, args.hold)) for n in args.concurrency]
    print("\nrendered by timbrel.Client")
    print_table(
        ["at once", "notes", "median s", "slowest s", "notes/s", "x real time"],
        [list(result.values()) for result in results],
    )
    return {"seconds": args.hold, "results": results}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; --quick sets what was left open to less."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="under a minute")
    add("--bundle", type=Path, help="bundle to serve (default: the one that ships)")
    add("--slots", type=int, default=16, help="of server and engine (default %(default)s)")
    add("--precision", default="fp32", help="of server and engine (default %(default)s)")
    add("--clients", type=int, default=2, help="processes that ask (default %(default)s)")
    add("--loads", nargs="+", type=float, help="shares of saturation (default: 0.25 0.5 0.75 0.9)")
    add("--seconds", type=float, help="of each measurement (default: 10; --quick: 2)")
    add("--rounds", type=int, help="in turn with the bare engine (default: 5; --quick: 3)")
    add("--render-only", action="store_true", help="measure only what a client renders")
    add("--server", help="HOST:PORT of a running server to render with (default: a private one)")
    add("--notes", type=int, help="notes rendered at each concurrency (default: 16; --quick: 4)")
    add("--hold", type=float, help="seconds that these are held (default: 1; --quick: 0.3)")
    add("--concurrency", type=int, nargs="+", default=[1, 4, 16], help="rendered at once (default: 1 4 16)")
    args = parser.parse_args(argv)
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    args.loads = args.loads or ([REPORTED_LOAD] if args.quick else list(LOADS))
    args.seconds = args.seconds or (2.0 if args.quick else 10.0)
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.notes = args.notes or (4 if args.quick else 16)
    args.hold = args.hold or (0.3 if args.quick else 1.0)
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the idle, the saturated and the loaded server; prints as it goes."""
    manifest = Bundle.open(args.bundle).manifest
    bench = Bench(args)
    try:
        if bench.server_core == bench.load_core:
            print("there is one core only: the load takes time away from the server")
        print(
            f"server and bare engine on core {bench.server_core}, {args.clients} clients on {bench.load_core}"
        )
        figures: dict[str, Any] = bench.idle(5 if args.quick else 20, args.rounds)
        figures |= bench.saturated(args.seconds, args.rounds)
        frame_rate = manifest.codec.sample_rate / manifest.codec.hop_length
        # Notes sound on after their release: what a note really takes is found under the first load.
        frames_per_note = frame_rate * sum(HELD.values()) / 2
        rows: list[dict[str, Any]] = []
        for share in sorted(args.loads):
            rate = share * figures["server_frames_per_second"] / frames_per_note
            row = bench.loaded(rate, args.seconds)
            if row["notes_per_second"]:
                frames_per_note = row["frames_per_second"] / row["notes_per_second"]
            rows.append({"load": share, **row, "streams": round(row["frames_per_second"] / frame_rate, 1)})
    finally:
        bench.close()
    in_time = [row["streams"] for row in rows if not row["late_chunks"] and not row["refused"]]
    reported = min(rows, key=lambda row: abs(row["load"] - REPORTED_LOAD))
    return figures | {
        "notes_per_second": max(row["notes_per_second"] for row in rows),
        "real_time_streams": max(in_time, default=0.0),
        "first_chunk_ms": reported["first_chunk_ms"],
        "first_chunk_at_load": reported["load"],
        "loads": rows,
        "slots": args.slots,
        "precision": args.precision,
    }


def print_figures(figures: dict[str, Any]) -> None:
    """The tables."""
    print(
        f"\nidle: the first chunk comes after {figures['idle_first_chunk_ms']:.2f} ms; "
        f"its admission and steps alone take {figures['idle_compute_ms']:.2f} ms\n"
        f"saturated: {figures['server_frames_per_second']:.0f} frames/s by a call for each note, "
        f"{figures['batch_frames_per_second']:.0f} by GenerateBatch, the bare engine "
        f"{figures['engine_frames_per_second']:.0f} on the same core\n"
    )
    print_table(
        ["load", "notes/s", "streams", "late chunks", "refused", "first chunk p50 ms", "p95", "p99"],
        [
            [row[name] for name in ("load", "notes_per_second", "streams", "late_chunks", "refused")]
            + list(row["first_chunk_ms"].values())
            for row in figures["loads"]
        ],
    )


def main() -> None:
    """Measures, prints tables, bars and the line of JSON."""
    args = parse_arguments()
    report = Report("serve", quick=args.quick)
    if args.render_only:
        report.finish({"rendered": render(args)})
        return
    try:
        figures = measure(args)
    except BundleError as error:
        sys.exit(f"serve: {error}")
    print_figures(figures)
    figures["rendered"] = render(args)
    allowed = 1.5 * figures["idle_compute_ms"] + OVERHEAD_MS
    report.finish(
        figures,
        [
            Bar("server_over_engine", figures["server_over_engine"], 0.9),
            Bar("batch_over_engine", figures["batch_over_engine"], 0.95),
            Bar("idle first chunk, ms", figures["idle_first_chunk_ms"], round(allowed, 2), at_most=True),
        ],
    )


if __name__ == "__main__":
    main()
