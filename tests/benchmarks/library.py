"""`timbrel library` beside the same server's own saturation.

Examples:
    python tests/benchmarks/library.py                      the bundle that ships; five minutes or so
    python tests/benchmarks/library.py --quick
    python tests/benchmarks/library.py --cores apart --notes 400

In turn, with one server: as many frames a second as it writes for callers that do nothing with them, and a
whole library, rendered and finished. Of that library:
library_over_server    notes written and kept on disk under their keys, while the server is saturated
phase_one_over_server  from the first request to the last note kept: slots fill at its start and empty
                       at its end
whole_over_server      with measuring (pitch, loudness) and finishing (loops, files), which go on beside it
library_over_server_per_cpu_second compares frames by the server's own processor time, which other programs on
the machine do not disturb: whether its slots were full, though not whether it had to wait.
Once with the server on a core of its own, as if on another machine, and all of the library's work on another
("apart"); once with both free to use all cores ("shared"), where measuring takes what the server leaves.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.processes import BenchServer, HelperProcess, cpu_seconds
from benchmarks.harness.report import Bar, Report, print_table, usable_cores

from timbrel_server.config import default_bundle_path

CORES = ("apart", "shared")
RATIOS = ("saturated", "phase_one", "whole")


class Bench:
    """The server, a load that only counts, and libraries: two of them idle at any time."""

    def __init__(self, args: argparse.Namespace, cores: str) -> None:
        every = usable_cores()
        self.seconds, self.slots = args.seconds, args.slots
        server, rest = ({every[0]}, {every[-1]}) if cores == "apart" else (set(every), set(every))
        threads = str(len(server))
        self.server = BenchServer(
            args.bundle, server, "--threads", threads, "--slots", str(args.slots), "--provider", "cpu"
        )
        self.load = HelperProcess("benchmarks.harness.load", [self.server.address, "1"], rest)
        self.library = HelperProcess("benchmarks.harness.library_run", [self.server.address], rest)

    def close(self) -> None:
        """Ends all processes."""
        for process in (self.load, self.library):
            process.close()
        self.server.close()

    def saturate(self, seconds: float) -> tuple[float, float]:
        """Frames per second, and per second of the server's processor time."""
        before = cpu_seconds(self.server.pid)
        found = self.load.ask(
            what="saturate",
            n_at_once=2 * self.slots,
            seconds=seconds,
            shortest=self.seconds,
            longest=self.seconds,
        )
        rate = float(found["frames_per_second"])
        # Frames of the warm-up before the window are not counted, its processor time is: 1.2 windows of it.
        return rate, rate * seconds / ((cpu_seconds(self.server.pid) - before) / 1.2)

    def build(self, n_notes: int, seed: int) -> dict[str, float]:
        """A library of about so many notes."""
        before = cpu_seconds(self.server.pid)
        found: dict[str, float] = self.library.ask(n_notes=n_notes, seconds=self.seconds, seed=seed)
        spent = cpu_seconds(self.server.pid) - before
        return found | {"frames_per_cpu_second": found["frames"] / spent}


def measure(args: argparse.Namespace, cores: str) -> dict[str, Any]:
    """The ratios of one arrangement: medians over rounds."""
    bench = Bench(args, cores)
    try:
        bench.build(bench.slots, seed=1)  # loads the codec and the trackers
        pairs, per_cpu = [], []
        for round_ in range(args.rounds):
            before = bench.saturate(args.window)
            built = bench.build(args.notes, seed=1000 + round_)
            after = bench.saturate(args.window)
            server = (before[0] + after[0]) / 2.0
            pairs.append((server, built))
            per_cpu.append(2.0 * built["frames_per_cpu_second"] / (before[1] + after[1]))
            print(
                f"{cores}, round {round_ + 1}: server {server:.0f} frames/s; library "
                f"{built['saturated_frames_per_second']:.0f} saturated, "
                f"{built['whole_frames_per_second']:.0f} in all",
                flush=True,
            )
    finally:
        bench.close()
    ratios = {
        f"{name}_over_server": round(
            statistics.median(built[f"{name}_frames_per_second"] / server for server, built in pairs), 3
        )
        for name in RATIOS
    }
    rates = {
        name: round(statistics.median(built[name] for _, built in pairs), 2)
        for name in ("phase_one_notes_per_second", "whole_notes_per_second")
    }
    server = round(statistics.median(server for server, _ in pairs), 1)
    return {
        "server_frames_per_second": server,
        "notes": pairs[0][1]["notes"],
        "library_over_server_per_cpu_second": round(statistics.median(per_cpu), 3),
        **ratios,
        **rates,
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; --quick sets what was left open to less."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="about a minute")
    add("--bundle", type=Path, help="bundle to serve (default: the one that ships)")
    add("--slots", type=int, default=16, help="of the server (default %(default)s)")
    add("--cores", nargs="+", choices=CORES, help="(default: apart shared; --quick: apart)")
    add("--seconds", type=float, default=1.0, help="for which notes are held (default %(default)s)")
    add("--notes", type=int, help="of a library, about (default: 300; --quick: 100)")
    add("--window", type=float, help="seconds of saturation, twice a round (default: 10; --quick: 4)")
    add("--rounds", type=int, help="in turn (default: 3; --quick: 1)")
    args = parser.parse_args(argv)
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    args.cores = args.cores or (["apart"] if args.quick else list(CORES))
    args.notes = args.notes or (100 if args.quick else 300)
    args.window = args.window or (4.0 if args.quick else 10.0)
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def print_figures(figures: dict[str, dict[str, Any]]) -> None:
    """The table."""
    print()
    print_table(
        ["cores", "server frames/s", "saturated", "phase one", "whole", "phase one notes/s", "whole notes/s"],
        [
            [
                cores,
                found["server_frames_per_second"],
                *(found[f"{name}_over_server"] for name in RATIOS),
                found["phase_one_notes_per_second"],
                found["whole_notes_per_second"],
            ]
            for cores, found in figures.items()
        ],
    )


def main() -> None:
    """Measures, prints the table, the bar and the line of JSON."""
    args = parse_arguments()
    report = Report("library", quick=args.quick)
    if len(usable_cores()) == 1:
        print("there is one core only: the library takes time away from the server")
    figures = {cores: measure(args, cores) for cores in args.cores}
    print_figures(figures)
    first = figures[args.cores[0]]
    ratio = first["saturated_over_server"]
    report.finish(
        {
            "library_over_server": ratio,
            "library_over_server_per_cpu_second": first["library_over_server_per_cpu_second"],
            "phase_one_over_server": first["phase_one_over_server"],
            "whole_over_server": first["whole_over_server"],
            "cores": figures,
            "slots": args.slots,
            "held_seconds": args.seconds,
        },
        [Bar("library_over_server", ratio, 0.9), Bar("whole_over_server", first["whole_over_server"], 0.9)],
    )


if __name__ == "__main__":
    main()
