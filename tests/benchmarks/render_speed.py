"""How fast notes come, from the call to decoded audio: one after another and many at once, over a server.

Examples:
    python tests/benchmarks/render_speed.py                        a private server with the bundle that ships
    python tests/benchmarks/render_speed.py --quick
    python tests/benchmarks/render_speed.py --server gpu-box:50051 --concurrency 64 256

Times are wall-clock. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.report import Report
from benchmarks.harness.table import print_table

import timbrel


@dataclass(frozen=True)
class Result:
    """One measurement."""

    concurrency: int
    notes: int
    median_seconds: float
    """From asking for a note to holding its audio."""
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


def measure(client: timbrel.Client, concurrency: int, n_notes: int, hold: float) -> Result:
    """Renders n_notes, at most `concurrency` of them at a time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        times, lengths = zip(*pool.map(lambda i: timed_note(client, i, hold), range(n_notes)), strict=True)
    elapsed = time.perf_counter() - start
    return Result(
        concurrency=concurrency,
        notes=n_notes,
        median_seconds=round(statistics.median(times), 4),
        slowest_seconds=round(max(times), 4),
        notes_per_second=round(n_notes / elapsed, 3),
        times_real_time=round(sum(lengths) / elapsed, 3),
    )


def main() -> None:
    """Measures and prints a table and one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer and shorter notes")
    add("--server", help="HOST:PORT of a running server (default: a private one)")
    add("--notes", type=int, help="notes of each measurement (default: 16; --quick: 4)")
    add("--seconds", type=float, help="how long each note is held (default: 1; --quick: 0.3)")
    add("--concurrency", type=int, nargs="+", default=[1, 4, 16], help="at once (default: 1 4 16)")
    args = parser.parse_args()
    n_notes, hold = args.notes or (4 if args.quick else 16), args.seconds or (0.3 if args.quick else 1.0)

    report = Report("render_speed", quick=args.quick)
    with timbrel.Client(args.server) as client:
        timed_note(client, 0, hold)  # the first note also starts the server and loads the codec
        results = [measure(client, n, n_notes, hold) for n in args.concurrency]
    print_table(
        ["at once", "notes", "median s", "slowest s", "notes/s", "x real time"],
        [list(asdict(result).values()) for result in results],
    )
    report.finish({"seconds": hold, "results": [asdict(result) for result in results]})


if __name__ == "__main__":
    main()
