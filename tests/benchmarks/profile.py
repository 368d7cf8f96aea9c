"""Shows where a step's time goes, by operator, and how near it comes to its own products and attentions.

Examples:
    python tests/benchmarks/profile.py                          the bundle that ships, batches 1 and 32
    python tests/benchmarks/profile.py --shape large --position 300
    python tests/benchmarks/profile.py --nodes                  every node, in the order in which they run
    python tests/benchmarks/profile.py --quick

The one-node bound runs each matrix product and each attention of the step alone in a graph: same shapes,
threads, weights and order, so that the caches hold what they would in the step. What calling a graph costs is
taken off. `roofline` is that bound over the whole step, the host's part included. The last line is JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.bound import BOUND_BY, Bound, NodeRun, Observation, observe
from benchmarks.harness.our_step import OurStep, open_at
from benchmarks.harness.report import Bar, Report, print_table
from benchmarks.harness.timing import FULL, QUICK, Plan, Times, interleave

from timbrel_bundle.bundle import Bundle
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import FP32, INT8

STEP, BOUND, NOTHING = "step", "bound", "nothing"

WHY = {
    "Gather": "embeddings of tokens, gate and position",
    "TopK": "the draw: candidates",
    "If": "the draw: among more candidates, where a token is not among the first",
    "CumSum": "the draw: inverse cumulative distribution",
    "GatherElements": "the draw: the token chosen",
    "ScatterElements": "the draw",
    "Softmax": "cross-attention",
    "Split": "queries, keys and values of one product",
    "LayerNormalization": "of the model",
    "SkipLayerNormalization": "of the model, with the residual's addition",
    "BiasGelu": "of the model",
    "Gelu": "of the model",
    "FastGelu": "of the model",
    "QuickGelu": "of the model",
    "GroupQueryAttention": "self-attention and the cache's new position",
    "MatMul": "projections",
    "MatMulNBits": "projections, weights of 8 bits",
    "Gemm": "projections and heads",
    "FusedMatMul": "projections or cross-attention",
}
"""The purposes of the operators of a step."""


def measure(
    bundle: Bundle, n_rows: int, position: int, n_threads: int, precision: str, plan: Plan
) -> tuple[Observation, Times]:
    """A step seen from within, and timed in turn with its bound."""
    step = observe(bundle, n_rows, position, n_threads, precision)
    bound = Bound(step, position, n_threads)
    ours = OurStep(open_at(bundle, n_threads, precision), bundle, n_rows)
    works = {STEP: ours.work(n_rows, position), BOUND: bound.run, NOTHING: bound.run_nothing}
    return step, interleave(works, plan)


def print_operators(step: Observation, n_rows: int, position: int) -> None:
    """The step's nodes by type."""
    total = sum(node.seconds for node in step.nodes)
    seconds: dict[str, float] = defaultdict(float)
    for node in step.nodes:
        seconds[node.op] += node.seconds
    counts = Counter(node.op for node in step.nodes)
    print(f"\nbatch {n_rows}, position {position}: {len(step.nodes)} nodes, kernels {1e3 * total:.2f} ms")
    print_table(
        ["operator", "nodes", "us", "% of kernels", "in the bound", "what for"],
        [
            [
                op,
                counts[op],
                1e6 * spent,
                100 * spent / total,
                "yes" if op in BOUND_BY else "",
                WHY.get(op, ""),
            ]
            for op, spent in sorted(seconds.items(), key=lambda item: -item[1])
        ],
    )


def print_nodes(nodes: Sequence[NodeRun]) -> None:
    """Every node, in order."""
    print_table(
        ["node", "operator", "us", "inputs"],
        [
            [node.name, node.op, 1e6 * node.seconds, " ".join(str(list(shape)) for _, shape in node.inputs)]
            for node in nodes
        ],
    )


def figures_of(step: Observation, times: Times) -> dict[str, Any]:
    """A batch size's part of the JSON."""
    kernels = sum(node.seconds for node in step.nodes)
    bound_kernels = sum(node.seconds for node in step.nodes if node.op in BOUND_BY)
    bound = times.seconds(BOUND) - times.seconds(NOTHING)
    return {
        "step_ms": round(1e3 * times.seconds(STEP), 4),
        "bound_ms": round(1e3 * bound, 4),
        "roofline": round(bound / times.seconds(STEP), 3),
        "kernels_ms": round(1e3 * kernels, 4),
        "bound_share_of_kernels": round(bound_kernels / kernels, 3),
        "nodes": dict(Counter(node.op for node in step.nodes)),
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="shorter runs")
    add("--bundle", type=Path, help="bundle to measure (default: the one that ships)")
    add(
        "--shape",
        choices=("shipped", "large", "tiny"),
        help="instead: a model of this shape with random weights",
    )
    add("--batches", nargs="+", type=int, default=[1, 32], help="batch sizes (default: 1 32)")
    add("--position", type=int, default=100, help="where the rows stand (default %(default)s)")
    add("--threads", type=int, default=1, help="threads of a step (default %(default)s)")
    add("--precision", choices=(FP32, INT8), default=FP32, help="of the step (default %(default)s)")
    add("--nodes", action="store_true", help="list every node")
    return parser.parse_args(argv)


def _open_bundle(args: argparse.Namespace, folder: Path) -> Bundle:
    if args.shape is None:
        return Bundle.open(args.bundle or default_bundle_path())
    from benchmarks.harness.models import SHAPES, random_model, write_model_bundle  # needs torch

    return write_model_bundle(random_model(SHAPES[args.shape]), folder / args.shape, portable=False)


def main() -> None:
    """Measures, prints tables and the line of JSON."""
    args = parse_arguments()
    report = Report("profile", quick=args.quick)
    plan = (QUICK if args.quick else FULL).for_threads(args.threads)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="timbrel-bench-") as folder:
        bundle = _open_bundle(args, Path(folder))
        if args.position >= bundle.manifest.model.max_positions:
            sys.exit(
                f"position {args.position} is beyond the cache of {bundle.manifest.name}: "
                f"0 to {bundle.manifest.model.max_positions - 1} are allowed; or use --shape"
            )
        for n_rows in args.batches:
            step, times = measure(bundle, n_rows, args.position, args.threads, args.precision, plan)
            print_operators(step, n_rows, args.position)
            if args.nodes:
                print_nodes(step.nodes)
            found[str(n_rows)] = figures_of(step, times)
    print()
    print_table(
        ["batch", "step ms", "bound ms", "roofline", "kernels ms", "bound's share of kernels"],
        [
            [n, f["step_ms"], f["bound_ms"], f["roofline"], f["kernels_ms"], f["bound_share_of_kernels"]]
            for n, f in found.items()
        ],
    )
    bars = [Bar(f"roofline, batch {n}", f["roofline"], 0.7) for n, f in found.items()]
    figures = {
        "model": bundle.manifest.name,
        "position": args.position,
        "threads": args.threads,
        "precision": args.precision,
    }
    report.finish(
        figures | {"roofline": {n: f["roofline"] for n, f in found.items()}, "batches": found}, bars
    )


if __name__ == "__main__":
    main()
