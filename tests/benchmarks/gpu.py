"""Everything on CUDA: whether it is right, how fast a step is, how many streams, what gRPC lets through.

Examples:
    python tests/benchmarks/gpu.py            the bundle that ships, on the GPU; five minutes or so
    python tests/benchmarks/gpu.py --quick
    python tests/benchmarks/gpu.py --dry-run  the same code on the CPU, at tiny sizes: where there is no GPU
    python tests/benchmarks/gpu.py --precisions fp16

Correctness: the graph writes notes, and the PyTorch model scores each step too, in fp32 on the CPU: mean KL
per token, share of equal likeliest tokens. Streams are of codes, in process: each plays note after note,
300 ms behind. The gRPC ceiling is that of a real server whose runner computes nothing. The last line is one
JSON object; without a GPU it says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.harness.our_step import OurStep, open_at
from benchmarks.harness.processes import BenchServer, HelperProcess
from benchmarks.harness.report import Bar, Report, print_table, usable_cores
from benchmarks.harness.streams import CodesOnly, Player
from benchmarks.harness.timing import FULL, QUICK, Plan, interleave

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError, ProviderError
from timbrel_bundle.runtime import CUDA, obstacle
from timbrel_export.parity import GraphDecoder
from timbrel_posttraining.finetune.base import Base
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import DECODER_GRAPHS, DecoderSessions
from timbrel_training.model import NoteTransformer
from timbrel_training.model.sampling import Sampling

MAX_MEAN_KL = 0.01
"""Nats per token."""
STREAMS_WANTED = 1000
FIRST_CHUNK_STREAMS = 100
FIRST_CHUNK_MS = 30.0
GRPC_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The extent of the measurements."""

    n_notes: int
    n_steps: int
    batches: tuple[int, ...]
    n_slots: int
    probe_seconds: float
    stream_seconds: float
    first_chunk_streams: int
    plan: Plan


WHOLE = Sizes(16, 200, (1, 8, 32, 128, 512, 1024), 1024, 5.0, 60.0, FIRST_CHUNK_STREAMS, FULL)
SHORT = Sizes(8, 50, (1, 32, 512), 1024, 3.0, 5.0, FIRST_CHUNK_STREAMS, QUICK)
TINY = Sizes(2, 8, (1, 2), 4, 0.5, 1.0, 2, QUICK)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Agreement of a graph with the model over all tokens of some notes, teacher-forced."""

    n_tokens: int
    mean_kl: float
    """Nats per token, of the graph's distribution from the model's."""
    agreement: float
    """Share of tokens whose likeliest value is the same."""
    max_logit_difference: float


@torch.inference_mode()
def compare(
    model: NoteTransformer, bundle: Bundle, sessions: DecoderSessions, n_notes: int, n_steps: int
) -> Agreement:
    """Lets the graph write notes, step by step, and asks the model what it thinks of each step.

    Args:
        model: the weights of the bundle, in fp32.
    """
    config, random = model.config, np.random.default_rng(0)
    timbre = random.uniform(-0.7, 0.7, (n_notes, 2)).astype(np.float32)
    ranges = bundle.manifest.ranges
    pitch = random.integers(ranges.pitch_min, ranges.pitch_max + 1, n_notes)
    velocity = random.integers(ranges.velocity_min, ranges.velocity_max + 1, n_notes).astype(np.float32)
    gate = np.ones((n_notes, n_steps), dtype=np.int64)
    tokens = np.full((n_notes, n_steps + 1, config.n_codebooks), bundle.manifest.model.bos_id)
    decoder = GraphDecoder(sessions.condition_encoder, sessions.decoder, config)
    decoder.begin(timbre, pitch, velocity)
    logits = []
    for step in range(n_steps):
        drawn, scores = decoder.step(
            tokens[:, step],
            gate[:, step],
            np.full(n_notes, step, np.int32),
            uniforms=random.uniform(0.01, 0.99, (n_notes, config.n_codebooks)).astype(np.float32),
            sampling=Sampling(),
        )
        logits.append(scores)
        begun = min(step + 1, config.n_codebooks)  # of the delay pattern
        tokens[:, step + 1, :begun] = drawn[:, :begun]
    given = (timbre, pitch, velocity, tokens[:, :-1], gate)
    wanted = model(*(torch.from_numpy(each) for each in given)).numpy()
    return _compare_logits(wanted, np.stack(logits, axis=1).astype(np.float32))


def _compare_logits(wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> Agreement:
    is_allowed = wanted > -1e8  # what a head may not choose is no token
    log_wanted, log_found = _log_softmax(wanted), _log_softmax(found)
    divergence = np.where(is_allowed, np.exp(log_wanted) * (log_wanted - log_found), 0.0).sum(axis=-1)
    return Agreement(
        n_tokens=divergence.size,
        mean_kl=float(divergence.mean()),
        agreement=float((wanted.argmax(axis=-1) == found.argmax(axis=-1)).mean()),
        max_logit_difference=float(np.abs(wanted - found)[is_allowed].max()),
    )


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def check(args: argparse.Namespace, sizes: Sizes, bundle: Bundle) -> dict[str, Any]:
    """Every precision of the provider against the model."""
    model = Base.open(bundle.path).model
    n_steps = min(sizes.n_steps, bundle.manifest.model.max_frames)
    found = {}
    for precision in args.precisions:
        sessions = open_at(bundle, 0, precision, args.provider)
        agreement = compare(model, bundle, sessions, sizes.n_notes, n_steps)
        found[precision] = dataclasses.asdict(agreement) | {
            "provider": sessions.provider,
            "graph": sessions.decoder_graph,
        }
    print("\nagainst the model in PyTorch, fp32")
    print_table(
        ["precision", "graph", "runs on", "tokens", "mean KL, nats", "same likeliest", "largest difference"],
        [
            [
                name,
                f["graph"],
                f["provider"],
                f["n_tokens"],
                f["mean_kl"],
                f["agreement"],
                f["max_logit_difference"],
            ]
            for name, f in found.items()
        ],
    )
    return found


def time_steps(args: argparse.Namespace, sizes: Sizes, bundle: Bundle) -> dict[str, dict[str, float]]:
    """Milliseconds a step by precision and batch, in turn with the CPU at the smallest batch."""
    position = bundle.manifest.model.max_positions // 2
    steps = {
        precision: OurStep(open_at(bundle, 0, precision, args.provider), bundle, max(sizes.batches))
        for precision in args.precisions
    }
    found: dict[str, dict[str, float]] = {precision: {} for precision in steps}
    for n_rows in sizes.batches:
        works = {precision: step.work(n_rows, position) for precision, step in steps.items()}
        times = interleave(works, sizes.plan)
        for precision in steps:
            found[precision][str(n_rows)] = round(1e3 * times.seconds(precision), 4)
    print(f"\nmilliseconds a step, position {position}")
    print_table(["batch", *steps], [[n, *(found[p][str(n)] for p in steps)] for n in sizes.batches])
    return found


def stream(args: argparse.Namespace, sizes: Sizes, bundle: Bundle) -> dict[str, Any]:
    """Streams of codes in process: the most of them, and the first chunks at a hundred."""
    sessions = open_at(bundle, 0, args.precisions[0], args.provider)
    player = Player(bundle, sessions, sizes.n_slots, CodesOnly(bundle))
    try:
        player.times_real_time(1)
        some = player.try_streams(sizes.first_chunk_streams, sizes.probe_seconds)
        most = player.most_streams(max(1, sizes.n_slots // 4), sizes.probe_seconds, sizes.stream_seconds)
    finally:
        player.close()
    p50, p95, p99 = (float(q) for q in np.quantile(some.first_chunk_ms or (np.nan,), [0.5, 0.95, 0.99]))
    print(
        f"\ncodes in process, {args.precisions[0]}: {most.n_streams} real-time streams for "
        f"{sizes.stream_seconds:g} s;\nat {some.n_streams} streams the first chunk comes after "
        f"{p50:.1f} ms (p50), {p95:.1f} (p95), {p99:.1f} (p99)"
    )
    return {
        "real_time_streams": most.n_streams,
        "real_time_stream_seconds": sizes.stream_seconds,
        "first_chunk_streams": some.n_streams,
        "first_chunk_ms": {"p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)},
    }


def grpc_ceiling(args: argparse.Namespace, sizes: Sizes, bundle: Bundle) -> dict[str, float]:
    """Frames per second of a server that computes nothing, in streams that play in real time."""
    cores = usable_cores()
    # Half of the cores each: the clients must not be what is measured.
    half = max(1, len(cores) // 2)
    n_clients = 1 if args.dry_run else max(1, len(cores) - half)
    seconds = sizes.stream_seconds if args.dry_run or args.quick else GRPC_SECONDS
    options = ["--slots", str(sizes.n_slots), "--provider", "cpu", "--threads", "1"]
    server = BenchServer(bundle.path, cores[:half], *options, module="benchmarks.harness.null_server")
    clients = [
        HelperProcess("benchmarks.harness.load", [server.address, str(seed)], cores[-half:])
        for seed in range(n_clients)
    ]
    try:
        for client in clients:
            client.send(
                what="saturate",
                n_at_once=-(-sizes.n_slots // n_clients),
                seconds=seconds,
                shortest=1.0,
                longest=3.0,
            )
        frames = sum(client.read()["frames_per_second"] for client in clients)
    finally:
        for client in clients:
            client.close()
        server.close()
    codec = bundle.manifest.codec
    streams = frames * codec.hop_length / codec.sample_rate
    print(
        f"\ngRPC in Python, nothing computed: {frames:.0f} frames/s, {streams:.0f} streams, "
        f"{n_clients} clients"
    )
    return {"grpc_ceiling_frames_per_second": round(frames, 1), "grpc_ceiling_streams": round(streams, 1)}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="shorter")
    add("--dry-run", action="store_true", help="the same code on the CPU, at tiny sizes")
    add("--bundle", type=Path, help="bundle to measure (default: the one that ships)")
    add(
        "--precisions",
        nargs="+",
        help="of the decoder, the streams' first (default: all that the provider has)",
    )
    args = parser.parse_args(argv)
    args.provider = "cpu" if args.dry_run else "cuda"
    provider = "CPUExecutionProvider" if args.dry_run else CUDA
    args.precisions = args.precisions or list(DECODER_GRAPHS[provider])
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    return args


def main() -> None:
    """Measures, prints tables, bars and the line of JSON."""
    args = parse_arguments()
    report = Report("gpu", quick=args.quick)
    if not args.dry_run and (reason := obstacle(CUDA)):
        print(f"no GPU here: {reason}; --dry-run runs the same code on the CPU")
        report.finish({"gpu": False, "dry_run": False, "reason": reason})
        return
    sizes = TINY if args.dry_run else SHORT if args.quick else WHOLE
    bundle = Bundle.open(args.bundle)
    figures: dict[str, Any] = {
        "gpu": not args.dry_run,
        "dry_run": args.dry_run,
        "model": bundle.manifest.name,
    }
    try:
        figures["correctness"] = check(args, sizes, bundle)
        figures["step_ms"] = time_steps(args, sizes, bundle)
        figures |= stream(args, sizes, bundle)
        figures |= grpc_ceiling(args, sizes, bundle)
    except (BundleError, ProviderError) as error:
        sys.exit(f"gpu: {error}")
    worst = max(found["mean_kl"] for found in figures["correctness"].values())
    bars = [Bar("mean KL per token, worst precision", worst, MAX_MEAN_KL, at_most=True)]
    if not args.dry_run:
        bars += [
            Bar("real-time streams of codes in process", figures["real_time_streams"], STREAMS_WANTED),
            Bar(
                "first chunk at 100 streams, p95 ms",
                figures["first_chunk_ms"]["p95"],
                FIRST_CHUNK_MS,
                at_most=True,
            ),
        ]
    report.finish(figures, bars)


if __name__ == "__main__":
    main()
