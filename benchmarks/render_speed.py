"""How fast notes come: one after another, and many at once, through a real server and client.

Times are wall-clock, from the call to decoded audio. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", help="HOST:PORT of a running server (default: a private one)")
    parser.add_argument("--notes", type=int, default=16, help="notes of each measurement")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each note is held")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    args = parser.parse_args()

    with timbrel.Client(args.server) as client:
        timed_note(client, 0, args.seconds)  # the first note also starts the server and loads the codec
        results = [measure(client, n, args.notes, args.seconds) for n in args.concurrency]

    print("at once   notes   median s   slowest s   notes/s   x real time")
    for r in results:
        print(
            f"{r.concurrency:7d} {r.notes:7d} {r.median_seconds:10.3f} {r.slowest_seconds:11.3f}"
            f" {r.notes_per_second:9.2f} {r.times_real_time:13.2f}"
        )
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "render_speed", **machine, "results": [asdict(r) for r in results]}))


if __name__ == "__main__":
    main()
