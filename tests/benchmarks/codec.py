"""The codec's decoder: how many times faster than it plays it turns codes into audio, streamed and whole.

Examples:
    python tests/benchmarks/codec.py            chunks of 1 to 16 frames and whole notes, batches 1 to 32
    python tests/benchmarks/codec.py --quick
    python tests/benchmarks/codec.py --chunks 1 8 --batches 1 4

Beside it, where torch and the training package can be imported, the same decoder in PyTorch, with the same
weights, threads and chunks, run in turn. Above 1 in the last column ours is faster. Then what a note that is
played live costs, a frame each time that one is due. The last line is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt
from benchmarks.harness.report import Report, print_table
from benchmarks.harness.timing import FULL, QUICK, Plan, Times, Work, interleave

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import CODEC_WEIGHTS
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import default_bundle_path

CHUNKS = (1, 2, 4, 8, 16)
WHOLE_SECONDS = 4.0
BATCHES = (1, 2, 4, 8, 16, 32)
OURS, TORCH = "ours", "torch"
MAX_DIFFERENCE = 1e-3
"""Samples of the two may differ by this: by more, and they are not the same decoder."""
LIVE_SECONDS, LIVE_ROUNDS = 2.0, 3
"""Of a note played live, with one thread and with one per core in turn."""


@dataclass(frozen=True)
class Row:
    """One chunk size at one batch size."""

    chunk: int
    n_rows: int
    real_time: float
    """Seconds of audio of all rows per second of time."""
    milliseconds: float
    """The time of a chunk, all rows together."""
    vs_torch: float | None


class CodecStep:
    """The bundle's decoder, for any number of notes at once."""

    def __init__(self, bundle: Bundle, n_threads: int) -> None:
        self._decoder = CodecDecoder(bundle, n_threads)

    def decode(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Lagging audio [B, T * hop_length] of the first frames [B, T, K] of B notes."""
        audio, _ = self._decoder.run(codes, self._start(len(codes)))
        return audio

    def bind(self, codes: npt.NDArray[np.int64], begin: npt.NDArray[np.int64]) -> Work:
        """Decodes this chunk [B, T, K] of notes that began so again and again, as if it came after itself."""
        _, state = self._decoder.run(begin, self._start(len(begin)))
        return lambda: self._decoder.run(codes, state)

    def _start(self, n_notes: int) -> dict[str, npt.NDArray[Any]]:
        return {name: np.repeat(one, n_notes, axis=0) for name, one in self._decoder.initial_state().items()}


class TorchCodecStep:
    """The same chunk through the PyTorch module."""

    def __init__(self, codec: Any, codes: npt.NDArray[np.int64], begin: npt.NDArray[np.int64]) -> None:
        import torch

        from timbrel_training.codec.interface import Expression

        self._torch, self._codec = torch, codec
        self._codes, begun = torch.from_numpy(codes), torch.from_numpy(begin)
        with torch.inference_mode():
            self._plain = Expression.of(self._codes)
            start = codec.initial_state(len(begun))
            self.first, self._state = codec.decode_chunk(begun, Expression.of(begun), start)

    def run(self) -> None:
        """Runs it once."""
        with self._torch.inference_mode():
            self._codec.decode_chunk(self._codes, self._plain, self._state)


def open_torch_codec(bundle: Bundle, n_threads: int) -> Any:
    """The bundle's codec as a PyTorch module; None where torch is missing, or the codec is not known here.

    Raises:
        SystemExit: the module decodes to other audio than the bundle's graph.
    """
    try:
        import torch

        from timbrel_training.codec import registry
        from timbrel_training.errors import CheckpointError
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(n_threads)
    try:
        codec = registry.codec_in_bundle(bundle.file(CODEC_WEIGHTS))
    except CheckpointError:
        return None
    spec = bundle.manifest.codec
    codes = np.random.default_rng(0).integers(0, spec.codebook_size, (2, 4, spec.n_codebooks))
    theirs = TorchCodecStep(codec, codes, codes).first.numpy()
    worst = float(np.abs(theirs - CodecStep(bundle, n_threads).decode(codes)).max())
    if worst > MAX_DIFFERENCE * max(1.0, float(np.abs(theirs).max())):  # random codes may be loud
        raise SystemExit(f"the codec in PyTorch decodes to other audio: samples differ by up to {worst:.3g}")
    return codec


def note_codes(
    spec: pb.CodecSpec, n_notes: int, n_frames: int, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Codes [B, lead_frames + T, K] by chance: what codebooks say in the frames before the first of the sound
    stays, where they can say so."""
    codes = random.integers(0, spec.codebook_size, (n_notes, spec.lead_frames + n_frames, spec.n_codebooks))
    hold = np.array(spec.hold or [spec.codebook_size] * spec.n_codebooks)
    stays = hold < spec.codebook_size
    codes[:, spec.lead_frames :, stays] = hold[stays]
    return codes


def measure(
    ours: CodecStep,
    torch_codec: Any,
    codes: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int64],
    frame_rate: float,
    plan: Plan,
) -> Row:
    """Times one chunk of codes [B, T, K] of notes that began so."""
    works: dict[str, Work] = {OURS: ours.bind(codes, begin)}
    if torch_codec is not None:
        works[TORCH] = TorchCodecStep(torch_codec, codes, begin).run
    times: Times = interleave(works, plan)
    n_rows, chunk = codes.shape[:2]
    seconds = times.seconds(OURS)
    return Row(
        chunk=chunk,
        n_rows=n_rows,
        real_time=n_rows * chunk / frame_rate / seconds,
        milliseconds=1e3 * seconds,
        vs_torch=times.ratio(TORCH, OURS) if torch_codec is not None else None,
    )


def live_cost(bundle: Bundle, frame_rate: float) -> dict[str, float]:
    """Cores that decoding one note in real time takes, by the decoder's threads: between frames none of them
    has anything to do."""
    spec = bundle.manifest.codec
    codes = note_codes(spec, 1, 1, np.random.default_rng(0))
    steps = {
        name: CodecStep(bundle, n_threads).bind(codes[:, -1:], codes)
        for name, n_threads in (("one", 1), ("one per core", 0))
    }
    cores: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(LIVE_ROUNDS):
        for name, step in steps.items():
            start, busy = time.perf_counter(), time.process_time()
            for frame in range(round(LIVE_SECONDS * frame_rate)):
                time.sleep(max(0.0, start + frame / frame_rate - time.perf_counter()))
                step()
            cores[name].append((time.process_time() - busy) / (time.perf_counter() - start))
    return {name: float(np.median(rounds)) for name, rounds in cores.items()}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="short runs, fewer batch sizes")
    add("--bundle", type=Path, help="bundle whose codec is measured (default: the one that ships)")
    add("--chunks", nargs="+", type=int, default=list(CHUNKS), help="frames a chunk (default: 1 2 4 8 16)")
    add("--batches", nargs="+", type=int, help="notes at once (default: 1 2 4 8 16 32)")
    add("--threads", type=int, default=1, help="threads, on both sides (default %(default)s)")
    args = parser.parse_args(argv)
    args.batches = args.batches or ([1, 8] if args.quick else list(BATCHES))
    return args


def main() -> None:
    """Measures, prints a table and the line of JSON."""
    args = parse_arguments()
    report = Report("codec", quick=args.quick)
    bundle = Bundle.open(args.bundle or default_bundle_path())
    spec = bundle.manifest.codec
    frame_rate = spec.sample_rate / spec.hop_length
    ours = CodecStep(bundle, args.threads)
    live = live_cost(bundle, frame_rate)  # before torch's threads, which would be counted, too
    torch_codec = open_torch_codec(bundle, args.threads)
    if torch_codec is None:
        print("PyTorch is left out: torch and timbrel_training are not both here, or read no such codec")
    plan = (QUICK if args.quick else FULL).for_threads(args.threads)
    whole = round(WHOLE_SECONDS * frame_rate)
    random = np.random.default_rng(0)
    rows = []
    for n_rows in args.batches:
        for chunk in (*args.chunks, whole):
            codes = note_codes(spec, n_rows, chunk, random)
            part = codes[:, :chunk] if chunk == whole else codes[:, -chunk:]
            rows.append(measure(ours, torch_codec, part, codes, frame_rate, plan))
    print(
        f"\n{bundle.manifest.name}: {spec.sample_rate} Hz, {frame_rate:g} frames/s; "
        f"a whole note is {whole} frames"
    )
    print_table(
        ["frames a chunk", "notes at once", "ms a chunk", "x real time", "torch / ours"],
        [
            ["whole" if r.chunk == whole else str(r.chunk), r.n_rows, r.milliseconds, r.real_time, r.vs_torch]
            for r in rows
        ],
    )

    print("\none note, played live, takes of a core: ", end="")
    print(", ".join(f"{share:.2f} with threads {name}" for name, share in live.items()))

    def by_chunk(figure: str) -> dict[str, dict[str, float | None]]:
        found: dict[str, dict[str, float | None]] = {}
        for row in rows:
            name = "whole" if row.chunk == whole else str(row.chunk)
            value = getattr(row, figure)
            found.setdefault(name, {})[str(row.n_rows)] = None if value is None else round(value, 3)
        return found

    report.finish(
        {
            "model": bundle.manifest.name,
            "threads": args.threads,
            "real_time": by_chunk("real_time"),
            "vs_torch": by_chunk("vs_torch"),
            "live_cores_vs_one_thread": round(live["one per core"] / live["one"], 3),
        }
    )


if __name__ == "__main__":
    main()
