"""The decode step against other ways of running the same model, and the real-time streams that it keeps up.

Examples:
    python tests/benchmarks/decode.py                       the whole grid: half an hour or so
    python tests/benchmarks/decode.py --quick               under a minute: two batch sizes, one position; no
                                                      torch.compile, no portable graph
    python tests/benchmarks/decode.py --shapes shipped --batches 1 32 --positions 300 --no-streams

All sides have the same weights, threads, fused projections and draw, and are run in turn. Ratios are times of
the other side over ours: above 1, ours is faster. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.harness.bound import Bound, Floor, observe
from benchmarks.harness.concat_graph import ConcatStep, open_concat
from benchmarks.harness.models import SHAPES, random_model, write_model_bundle
from benchmarks.harness.our_step import NOTE, HostInput, OurStep, open_at, open_portable, step_inputs
from benchmarks.harness.report import Bar, Report, print_table
from benchmarks.harness.report import Cell as TableCell
from benchmarks.harness.streams import AudioDecoder, Player
from benchmarks.harness.timing import FULL, QUICK, Plan, Times, Work, interleave
from benchmarks.harness.torch_step import TorchStep, allow_recompiling, compiler_missing

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.randomness import uniforms_batch
from timbrel_posttraining.finetune.base import Base
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import FP32, INT8

BATCHES = (1, 2, 4, 8, 16, 32, 64)
POSITIONS = (100, 300, 600)
REPORTED_POSITION = 300
REPORTED_SHAPE = "shipped"
BUNDLE_SHAPE = "bundle"
"""The bundle's own model, which spares exporting one, and ends at its longest note."""
QUICK_POSITION = 200

OURS, OURS_8BIT = "ours", "ours int8"
EAGER, EAGER_FUSED, COMPILED = "torch eager", "torch sdpa", "torch.compile"
CONCAT, CONCAT_GROUPED, PORTABLE = "concat", "concat grouped", "portable"
BOUND, FLOOR, NOTHING = "bound", "floor", "nothing"
TORCH = (EAGER, EAGER_FUSED, COMPILED)
COLUMNS = (OURS, OURS_8BIT, *TORCH, CONCAT, CONCAT_GROUPED, PORTABLE)

VS_BEST_TORCH = ((1, 1.5), (8, 1.5), (32, 1.4))
VS_CONCAT = ((1, 1.1), (8, 1.5), (32, 1.8))
"""Batch size, and how many times as fast as the other side we should be there."""

STREAM_SECONDS = 60.0
QUICK_STREAM_SECONDS = 3.0
PROBE_SECONDS = 5.0
QUICK_PROBE_SECONDS = 1.5
STREAM_SLOTS = 64
FIRST_GUESS = 24
"""Streams of the first trial."""


@dataclass(frozen=True)
class Cell:
    """One place of the grid, measured."""

    shape: str
    n_rows: int
    position: int
    times: Times

    @property
    def best_torch(self) -> str:
        """The fastest of PyTorch's ways."""
        fastest = self.times.fastest(TORCH)
        assert fastest is not None
        return fastest

    def over_ours(self, other: str, ours: str = OURS) -> float | None:
        """Tells how many times as long the other side took; None where either was not measured."""
        if other not in self.times.runs or ours not in self.times.runs:
            return None
        return self.times.ratio(other, ours)

    @property
    def roofline(self) -> float | None:
        """Share of our step that its own products and attentions would take alone."""
        if BOUND not in self.times.runs:
            return None
        runs = zip(*(self.times.runs[name] for name in (BOUND, NOTHING, OURS)), strict=True)
        return float(np.median([(bound - nothing) / ours for bound, nothing, ours in runs]))

    @property
    def torch_over_floor(self) -> float | None:
        """Tells how many times as long the best of PyTorch takes as the products and one look at the cache.

        A step in this precision that did nothing else would reach it.
        """
        if FLOOR not in self.times.runs:
            return None
        runs = zip(*(self.times.runs[name] for name in (FLOOR, NOTHING, self.best_torch)), strict=True)
        return float(np.median([torch / (floor - nothing) for floor, nothing, torch in runs]))


class Contest:
    """All ways of running one model."""

    def __init__(
        self,
        shape: str,
        bundle: Path,
        folder: Path,
        n_slots: int,
        n_threads: int,
        *,
        compiles: bool,
        thorough: bool,
    ) -> None:
        """
        Args:
            shape: of SHAPES, or BUNDLE_SHAPE for the model of `bundle`.
            folder: for the graphs that are exported.
            thorough: with the portable graph and the second way of concatenating.
        """
        self._n_threads, self._compiles = n_threads, compiles
        if shape in SHAPES:
            self.model = random_model(SHAPES[shape])
            self.bundle = write_model_bundle(self.model, folder, portable=thorough)
        else:
            self.model, self.bundle = Base.open(bundle).model, Bundle.open(bundle)
            folder.mkdir(parents=True)
        self.ours = {
            name: OurStep(open_at(self.bundle, n_threads, precision), self.bundle, n_slots)
            for name, precision in ((OURS, FP32), (OURS_8BIT, INT8))
        }
        self._concat = {CONCAT: open_concat(self.model, folder, n_threads)}
        if thorough:
            self.ours[PORTABLE] = OurStep(open_portable(self.bundle, n_threads), self.bundle, n_slots)
            self._concat[CONCAT_GROUPED] = open_concat(self.model, folder, n_threads, grouped=True)

    @property
    def max_positions(self) -> int:
        """Positions of the cache."""
        return int(self.bundle.manifest.model.max_positions)

    def check(self, n_rows: int, n_steps: int = 4) -> None:
        """Compares what all sides draw for the same note from its start.

        Raises:
            SystemExit: one of those in fp32 draws other tokens. 8 bits may.
        """
        k, bos = self.bundle.manifest.codec.n_codebooks, self.bundle.manifest.model.bos_id
        caches = self.model.empty_caches(n_rows)
        eager, sdpa = TorchStep(self.model, caches), TorchStep(self.model, caches, fused=True)
        concats = {name: ConcatStep(self.model, session, n_rows) for name, session in self._concat.items()}
        sides: list[TorchStep | ConcatStep] = [eager, sdpa, *concats.values()]
        for side in sides:
            side.admit(NOTE.timbre, NOTE.pitch, NOTE.velocity)
        tokens: npt.NDArray[np.int64] = np.full((n_rows, k), bos)
        for position in range(n_steps):
            uniforms = uniforms_batch([NOTE.seed] * n_rows, [position] * n_rows, k)
            drawn = {
                name: step.step(tokens, position) for name, step in self.ours.items() if name != OURS_8BIT
            }
            drawn[EAGER] = eager.step(tokens, True, position, uniforms)
            drawn[EAGER_FUSED] = sdpa.step(tokens, True, position, uniforms)
            drawn |= {name: concat.step(tokens, uniforms) for name, concat in concats.items()}
            for name, theirs in drawn.items():
                if not np.array_equal(theirs, drawn[OURS]):
                    raise SystemExit(
                        f"{name} draws other tokens than our step at position {position}: no contest"
                    )
            tokens = drawn[OURS]

    def measure(
        self, n_rows: int, positions: Sequence[int], plan: Plan, bound_at: Sequence[int]
    ) -> list[Times]:
        """All sides in turn, at each position; at those of `bound_at` the one-node bound too."""
        sides = self._torch_sides(n_rows)
        return [
            self._measure_at(n_rows, position, sides, plan, position in bound_at) for position in positions
        ]

    def _torch_sides(self, n_rows: int) -> dict[str, TorchStep]:
        caches = self.model.empty_caches(n_rows)
        sides = {EAGER: TorchStep(self.model, caches), EAGER_FUSED: TorchStep(self.model, caches, fused=True)}
        if self._compiles:
            sides[COMPILED] = TorchStep(self.model, caches, compiled=True)
        for side in sides.values():
            side.admit(NOTE.timbre, NOTE.pitch, NOTE.velocity)
        return sides

    def _measure_at(
        self, n_rows: int, position: int, sides: dict[str, TorchStep], plan: Plan, with_bound: bool
    ) -> Times:
        works: dict[str, Work] = {name: ours.work(n_rows, position) for name, ours in self.ours.items()}
        works |= {name: _torch_work(side, position, self._inputs(n_rows)) for name, side in sides.items()}
        for name, session in self._concat.items():
            concat = ConcatStep(self.model, session, n_rows)
            concat.admit(NOTE.timbre, NOTE.pitch, NOTE.velocity)
            concat.stand_at(position)
            works[name] = _concat_work(concat, self._inputs(n_rows))
        if with_bound:
            bound = Bound(observe(self.bundle, n_rows, position, self._n_threads), position, self._n_threads)
            floor = Floor(bound, position)
            works |= {BOUND: bound.run, FLOOR: floor.run, NOTHING: bound.run_nothing}
        return interleave(works, plan)

    def _inputs(self, n_rows: int) -> Iterator[HostInput]:
        codec = self.bundle.manifest.codec
        return step_inputs(n_rows, codec.n_codebooks, codec.codebook_size)


def _torch_work(side: TorchStep, position: int, given: Iterator[HostInput]) -> Work:
    def work() -> list[list[int]]:
        read = next(given)
        drawn: list[list[int]] = side.step(np.array(read.tokens), True, position, read.uniforms).tolist()
        return drawn

    return work


def _concat_work(concat: ConcatStep, given: Iterator[HostInput]) -> Work:
    first = next(given)
    bound = concat.bind(np.array(first.tokens), first.uniforms.copy())

    def work() -> list[list[int]]:
        read = next(given)
        bound.tokens[:], bound.uniforms[:] = read.tokens, read.uniforms
        bound.run()
        drawn: list[list[int]] = bound.drawn.tolist()
        return drawn

    return work


def run_grid(args: argparse.Namespace, plan: Plan, folder: Path) -> list[Cell]:
    """Measures every shape, batch size and position."""
    cells: list[Cell] = []
    for shape in args.shapes:
        contest = Contest(
            shape,
            args.bundle,
            folder / shape,
            max(args.batches),
            args.threads,
            compiles=not args.no_compile,
            thorough=not args.quick,
        )
        contest.check(min(4, max(args.batches)))
        positions = [position for position in args.positions if position < contest.max_positions]
        note_odd_batches(contest, args.batches)
        for n_rows in args.batches:
            allow_recompiling(len(args.batches) * len(positions) * len(args.shapes))
            bound_at = positions if shape == args.shapes[0] else ()
            found = contest.measure(n_rows, positions, plan, bound_at)
            cells += [Cell(shape, n_rows, at, times) for at, times in zip(positions, found, strict=True)]
            print(f"  {shape}: batch {n_rows} measured", file=sys.stderr, flush=True)
    return cells


def note_odd_batches(contest: Contest, batches: Sequence[int]) -> None:
    """Says where our step runs at a larger batch than is asked for."""
    for name, ours in contest.ours.items():
        if odd := {n: run for n in batches if (run := ours.batch_run(n)) != n}:
            print(f"{name}: batch sizes that would change a note's codes are not used: {odd}")


def print_cells(cells: Sequence[Cell]) -> None:
    """A table of milliseconds, and one of ratios."""
    print("\nmilliseconds a step")
    place = ("shape", "batch", "position")
    print_table([*place, *COLUMNS], [[*_place(cell), *_milliseconds(cell)] for cell in cells])
    print("\ntimes as long as our step")
    columns = (
        "best torch",
        "is",
        "int8 vs torch",
        CONCAT,
        CONCAT_GROUPED,
        PORTABLE,
        "roofline",
        "torch / floor",
    )
    print_table([*place, *columns], [[*_place(cell), *_ratios(cell)] for cell in cells])


def _place(cell: Cell) -> list[TableCell]:
    return [cell.shape, cell.n_rows, cell.position]


def _milliseconds(cell: Cell) -> list[TableCell]:
    return [1e3 * cell.times.seconds(name) if name in cell.times.runs else None for name in COLUMNS]


def _ratios(cell: Cell) -> list[TableCell]:
    best = cell.best_torch
    others = [cell.over_ours(name) for name in (CONCAT, CONCAT_GROUPED, PORTABLE)]
    return [
        cell.over_ours(best),
        best,
        cell.over_ours(best, OURS_8BIT),
        *others,
        cell.roofline,
        cell.torch_over_floor,
    ]


def grid_figures(cells: Sequence[Cell], shape: str, position: int) -> dict[str, Any]:
    """The grid's part of the JSON."""
    reported = [cell for cell in cells if (cell.shape, cell.position) == (shape, position)]
    worst = min(cells, key=lambda cell: cell.over_ours(cell.best_torch) or 0.0)

    def by_batch(figure: Any) -> dict[str, float | None]:
        return {str(cell.n_rows): _rounded(figure(cell)) for cell in reported}

    return {
        "shape": shape,
        "position": position,
        "vs_best_torch": by_batch(lambda cell: cell.over_ours(cell.best_torch)),
        "vs_concat": by_batch(lambda cell: cell.over_ours(CONCAT)),
        "vs_concat_grouped": by_batch(lambda cell: cell.over_ours(CONCAT_GROUPED)),
        "vs_portable": by_batch(lambda cell: cell.over_ours(PORTABLE)),
        "vs_best_torch_8bit": by_batch(lambda cell: cell.over_ours(cell.best_torch, OURS_8BIT)),
        "roofline": by_batch(lambda cell: cell.roofline),
        "best_torch_over_floor": by_batch(lambda cell: cell.torch_over_floor),
        "worst_ratio": _rounded(worst.over_ours(worst.best_torch)),
        "worst_at": {"shape": worst.shape, "batch": worst.n_rows, "position": worst.position},
    }


def stream_figures(args: argparse.Namespace) -> dict[str, Any]:
    """Real-time streams of the shipped bundle: the engine on one thread, the codec's decoder on another."""
    bundle = Bundle.open(args.bundle)
    seconds = QUICK_STREAM_SECONDS if args.quick else args.stream_seconds
    probe = min(seconds, QUICK_PROBE_SECONDS if args.quick else PROBE_SECONDS)
    sessions = open_at(bundle, 1, args.stream_precision)
    player = Player(bundle, sessions, STREAM_SLOTS, AudioDecoder(bundle))
    try:
        player.times_real_time(2)
        single = player.times_real_time(3 if args.quick else 15)
        trial = player.most_streams(FIRST_GUESS, probe, seconds)
    finally:
        player.close()
    print(
        f"\n{bundle.manifest.name} ({args.stream_precision}), codes on one thread and audio on another: "
        f"one note comes {single:.1f} times as fast as it plays;\n"
        f"{trial.n_streams} real-time streams for {seconds:g} s"
        f"{' (short: --quick)' if args.quick else ''}, the tightest chunk "
        f"{-1e3 * trial.worst_lateness:.0f} ms before its time"
    )
    return {
        "real_time_streams": trial.n_streams,
        "real_time_stream_seconds": seconds,
        "single_stream_real_time": round(single, 2),
        "stream_precision": args.stream_precision,
    }


def bars(figures: dict[str, Any]) -> list[Bar]:
    """The bars that these figures are asked to reach."""

    def at(name: str, batch: int) -> float | None:
        value: float | None = figures[name].get(str(batch))
        return value

    fastest = max(
        (value for name in ("vs_best_torch", "vs_best_torch_8bit") if (value := at(name, 1)) is not None),
        default=None,
    )
    return [
        *(Bar(f"vs_best_torch, batch {n}", at("vs_best_torch", n), least) for n, least in VS_BEST_TORCH),
        Bar("worst_ratio over the grid", figures["worst_ratio"], 1.0),
        *(Bar(f"vs_concat, batch {n}", at("vs_concat", n), least) for n, least in VS_CONCAT),
        Bar("fastest precision vs best torch, batch 1", fastest, 2.5),
        *(Bar(f"roofline, batch {n}", at("roofline", n), 0.7) for n in (1, 32)),
        Bar("single_stream_real_time", figures.get("single_stream_real_time"), 3.0),
        Bar("real_time_streams", figures.get("real_time_streams"), 12.0),
    ]


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; --quick sets what was left open to less."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="under a minute: fewer cells, short runs, no torch.compile")
    add("--shapes", nargs="+", choices=[*SHAPES, BUNDLE_SHAPE], help="models (default: shipped large)")
    add("--batches", nargs="+", type=int, help=f"batch sizes (default: {' '.join(map(str, BATCHES))})")
    add("--positions", nargs="+", type=int, help=f"positions (default: {' '.join(map(str, POSITIONS))})")
    add("--threads", type=int, default=1, help="threads of a step, on every side (default %(default)s)")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add("--no-streams", action="store_true", help="leave the real-time streams out")
    add("--bundle", type=Path, help="bundle of the real-time streams (default: the one that ships)")
    add(
        "--stream-seconds",
        type=float,
        default=STREAM_SECONDS,
        help="of the final trial (default %(default)g)",
    )
    add("--stream-precision", choices=(FP32, INT8), default=FP32, help="of the streams' engine")
    args = parser.parse_args(argv)
    args.shapes = args.shapes or ([BUNDLE_SHAPE] if args.quick else ["shipped", "large"])
    args.batches = sorted(args.batches or ((1, 8) if args.quick else BATCHES))
    args.positions = sorted(args.positions or ((QUICK_POSITION,) if args.quick else POSITIONS))
    args.no_compile = args.no_compile or args.quick
    args.bundle = args.bundle or default_bundle_path()
    return args


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def main() -> None:
    """Measures, prints tables, bars and the line of JSON."""
    args = parse_arguments()
    report = Report("decode", quick=args.quick)
    torch.set_num_threads(args.threads)
    if args.no_compile:
        print(
            "torch.compile is left out" + (": compiling takes longer than --quick may" if args.quick else "")
        )
    elif reason := compiler_missing():
        args.no_compile = True
        print(reason)
    with tempfile.TemporaryDirectory(prefix="timbrel-bench-") as folder:
        plan = (QUICK if args.quick else FULL).for_threads(args.threads)
        cells = run_grid(args, plan, Path(folder))
    print_cells(cells)
    shape = REPORTED_SHAPE if REPORTED_SHAPE in args.shapes else args.shapes[0]
    positions = [cell.position for cell in cells if cell.shape == shape]
    position = REPORTED_POSITION if REPORTED_POSITION in positions else positions[-1]
    figures = grid_figures(cells, shape, position) | {"threads": args.threads}
    if not args.no_streams:
        figures |= stream_figures(args)
    report.finish(figures, bars(figures))


if __name__ == "__main__":
    main()
