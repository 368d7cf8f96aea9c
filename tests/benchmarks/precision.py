"""What lower precision costs: how far each strays from the model, and whether its notes are as well in tune.

Examples:
    python tests/benchmarks/precision.py                  the bundle that ships: 400 notes in each precision
    python tests/benchmarks/precision.py --quick
    python tests/benchmarks/precision.py --provider cuda --precisions fp16 fp32

Each graph writes notes while the PyTorch model, in fp32, scores its steps too: mean KL per token. Then an
engine writes the same notes, with the same seeds, at instruments' points: the share in tune, by swift-f0 from
50 ms on, within 50 cents of the pitch asked (36 to 94); and how many have exactly the codes of the first
precision. The last line is one JSON object.
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
from benchmarks.harness.agreement import compare
from benchmarks.harness.report import Bar, Report
from benchmarks.harness.sessions import open_at
from benchmarks.harness.table import print_table
from benchmarks.harness.written_notes import write_notes

from timbrel.pitch import PitchMeter, is_in_tune
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_posttraining.finetune.base import Base
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import FP32, INT8
from timbrel_server.engine.request import NoteRequest

LOWEST_PITCH, HIGHEST_PITCH = 36, 94
MAX_MEAN_KL = 0.01
"""Nats per token."""
MAX_LOST = 1.0
"""Points of the share in tune."""
N_SLOTS = 16
N_SCORED_NOTES, N_SCORED_STEPS = 16, 120


def notes_at_points(bundle: Bundle, n_notes: int) -> list[NoteRequest]:
    """Random notes of the instruments, each within its own pitches."""
    random, ranges = np.random.default_rng(0), bundle.manifest.ranges
    frame_rate = bundle.manifest.codec.sample_rate / bundle.manifest.codec.hop_length
    points = bundle.timbre_map.points
    requests = []
    for number in range(n_notes):
        point = points[number % len(points)]
        lowest, highest = max(point.pitch_min, LOWEST_PITCH), min(point.pitch_max, HIGHEST_PITCH)
        seconds = random.uniform(ranges.seconds_min, min(2.0, ranges.seconds_max))
        requests.append(
            NoteRequest(
                timbre=(point.x, point.y),
                pitch=int(random.integers(lowest, highest + 1)),
                velocity=int(random.integers(max(ranges.velocity_min, 20), ranges.velocity_max + 1)),
                held_frames=max(1, round(seconds * frame_rate)),
                seed=number,
            )
        )
    return requests


def share_in_tune(
    bundle: Bundle, requests: Sequence[NoteRequest], codes: Sequence[npt.NDArray[np.int64]]
) -> float:
    """Percent of the notes."""
    decoder, meter = CodecDecoder(bundle, n_threads=1), PitchMeter()
    right = [
        is_in_tune(request.pitch, meter.measure(decoder.decode(each), decoder.sample_rate))
        for request, each in zip(requests, codes, strict=True)
    ]
    return 100.0 * float(np.mean(right))


def measure(args: argparse.Namespace, bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Every precision asked for."""
    model = Base.open(bundle.path).model
    requests = notes_at_points(bundle, args.notes)
    n_steps = min(N_SCORED_STEPS, bundle.manifest.model.max_frames)
    found: dict[str, dict[str, Any]] = {}
    reference: list[npt.NDArray[np.int64]] = []
    for precision in args.precisions:
        sessions = open_at(bundle, 0, precision, args.provider)
        agreement = compare(model, bundle, sessions, N_SCORED_NOTES, n_steps)
        codes = write_notes(bundle, sessions, requests, N_SLOTS)
        reference = reference or codes
        same = [np.array_equal(one, other) for one, other in zip(codes, reference, strict=True)]
        found[precision] = dataclasses.asdict(agreement) | {
            "in_tune": round(share_in_tune(bundle, requests, codes), 2),
            "same_codes": round(100.0 * float(np.mean(same)), 1),
        }
    return found


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a tenth of the notes")
    add("--bundle", type=Path, help="bundle to measure (default: the one that ships)")
    add("--provider", default="cpu", help="cpu or cuda (default %(default)s)")
    add(
        "--precisions",
        nargs="+",
        default=[FP32, INT8],
        help="compared with the first (default: fp32 int8)",
    )
    add("--notes", type=int, default=400, help="notes in each precision (default %(default)s)")
    args = parser.parse_args(argv)
    if args.notes < 1:
        parser.error("--notes must be at least 1")
    if args.quick:
        args.notes = max(1, args.notes // 10)
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    args = parse_arguments(argv)
    report = Report("precision", quick=args.quick)
    found = measure(args, Bundle.open(args.bundle or default_bundle_path()))
    print_table(
        ["precision", "tokens", "mean KL, nats", "same likeliest", "in tune, %", "codes of the first, %"],
        [
            [name, f["n_tokens"], f["mean_kl"], f["agreement"], f["in_tune"], f["same_codes"]]
            for name, f in found.items()
        ],
    )
    first, *others = args.precisions
    lost = {name: found[first]["in_tune"] - found[name]["in_tune"] for name in others}
    bars = [
        *(Bar(f"{name}.mean_kl", found[name]["mean_kl"], MAX_MEAN_KL, at_most=True) for name in others),
        *(Bar(f"{name}.in_tune_lost", lost[name], MAX_LOST, at_most=True) for name in others),
    ]
    report.finish({"notes": args.notes, "precisions": found}, bars)


if __name__ == "__main__":
    main()
