"""Everything on CUDA, in stages: whether it is right, how fast a step is, how many streams it bears.

Examples:
    python tests/benchmarks/gpu.py            the bundle that ships, on the GPU; 25 minutes at most
    python tests/benchmarks/gpu.py --quick
    python tests/benchmarks/gpu.py --dry-run  the same code on the CPU, at tiny sizes: where there is no GPU
    python tests/benchmarks/gpu.py --stages device agreement --out found.jsonl

Each stage ends with a line of JSON, printed and added to --out at once: what was found is kept, whatever
becomes of the rest. A stage that fails says why, and the next one begins. Streams play note after note,
300 ms behind. The last line is one JSON object of all; without a GPU it says so.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from benchmarks.harness.agreement import GREEDY, compare, write_notes
from benchmarks.harness.our_step import N_STEPS, NOTE, OurStep, open_at, step_at, step_inputs
from benchmarks.harness.processes import ROOT, BenchServer, HelperProcess
from benchmarks.harness.report import Bar, Report, usable_cores
from benchmarks.harness.streams import CodesOnly, Player
from benchmarks.harness.timing import FULL, QUICK, Plan, interleave
from benchmarks.reload import renew

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import one_line
from timbrel_bundle.runtime import CPU, CUDA, obstacle, session_options
from timbrel_posttraining.finetune.base import Base
from timbrel_server.config import default_bundle_path
from timbrel_server.decoder.sessions import DECODER_GRAPHS, FP32, open_sessions, run_options

MAX_MEAN_KL = 0.01
"""Nats per token."""
STREAMS_WANTED = 1000
FIRST_CHUNK_MS = 30.0
PATIENCE = 60.0
"""Seconds that a reload may take beyond the time of the soak."""
MEAN_NOTE_SECONDS = 2.0
"""Notes of the load last one to three seconds."""
CONNECTIONS = 8
"""Of a client to a server of several processes: the kernel gives each connection to one of them at random."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The extent of the measurements."""

    n_notes: int
    n_steps: int
    n_slots: int
    probe_seconds: float
    stream_seconds: float
    soak_seconds: float
    first_chunk_streams: int
    n_processes: Sequence[int]
    plan: Plan


WHOLE = Sizes(16, 200, 1024, 5.0, 60.0, 60.0, 100, (2, 4, 8), FULL)
SHORT = Sizes(8, 50, 1024, 3.0, 5.0, 10.0, 100, (4, 8), QUICK)
TINY = Sizes(2, 8, 4, 2.0, 1.0, 2.0, 2, (2,), QUICK)


class Stages:
    """The stages, each a method that returns its figures; `ALL` has them in their order."""

    def __init__(self, args: argparse.Namespace, sizes: Sizes) -> None:
        self.args, self.sizes = args, sizes
        self.bundle = Bundle.open(args.bundle)
        self.n_steps = min(sizes.n_steps, self.bundle.manifest.model.max_frames)
        self.best = args.precisions[0]
        codec = self.bundle.manifest.codec
        self.frame_rate = codec.sample_rate / codec.hop_length

    def device(self) -> dict[str, Any]:
        """What it runs on, and which provider has each node of the decode graphs."""
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        with contextlib.suppress(OSError):
            print(subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip())
        placed = {}
        for precision in self.args.precisions:
            sessions = open_at(self.bundle, 0, precision, self.args.provider)
            options = session_options(1)
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
            session = self.bundle.session(sessions.decoder_graph, [sessions.provider], options)
            kinds = collections.Counter[str]()
            for part in session.get_provider_graph_assignment_info():
                kinds.update(
                    f"{part.ep_name} {'Memcpy' if node.op_type.startswith('Memcpy') else 'nodes'}"
                    for node in part.get_nodes()
                )
            placed[precision] = {"graph": sessions.decoder_graph, **kinds}
        return {"provider": sessions.provider, "placement": placed}

    def agreement(self) -> dict[str, Any]:
        """Greedy notes beside the CPU's, captured runs beside eager ones, and the batch sizes that agree."""
        given = (self.sizes.n_notes, self.n_steps, GREEDY)
        provider, found = self.args.provider, {}
        for precision in self.args.precisions:
            captured = write_notes(self.bundle, open_sessions(self.bundle, provider, 0, precision), *given)
            eager = write_notes(
                self.bundle, open_sessions(self.bundle, provider, 0, precision, captures=False), *given
            )
            processor = write_notes(self.bundle, open_at(self.bundle, 0, FP32), *given)
            same = (captured.read == processor.read).all(axis=2)
            step = OurStep(open_at(self.bundle, 0, precision, provider), self.bundle, self.sizes.n_slots)
            found[precision] = {
                "captured_equals_eager": bool(np.array_equal(captured.logits, eager.logits)),
                "steps_as_on_the_cpu": [int(row.cumprod().sum()) for row in same],
                "of_steps": self.n_steps,
                "agreeing_batch_sizes": list(step.runner.buckets),
            }
        return found

    def gpu_tests(self) -> dict[str, Any]:
        """`pytest -m gpu`."""
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/unit/server/test_runner.py"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return {"status": done.returncode, "said": done.stdout.splitlines()[-1:]}

    def correctness(self) -> dict[str, Any]:
        """The provider's best precision beside the model in PyTorch, in fp32 on the CPU."""
        return self._correctness(self.best)

    def step_ms(self) -> dict[str, Any]:
        """Milliseconds a step by batch size, every size that can be captured, and where they go."""
        return self._step_ms(self.best)

    def server(self) -> dict[str, Any]:
        """A real server over gRPC: first chunks at some streams, and the most of them; and a null server."""
        options = ("--provider", self.args.provider, "--precision", self.best)
        with self._loaded_server(*options) as (_, clients):
            some = self._play(clients, self.sizes.first_chunk_streams, self.sizes.probe_seconds)
            n = most = self.sizes.first_chunk_streams if some["is_good"] else 0
            last = some
            while most == n and n < self.sizes.n_slots:
                n = min(2 * n, self.sizes.n_slots)
                trial = self._play(clients, n, self.sizes.probe_seconds)
                if trial["is_good"]:
                    most, last = n, trial
            saturated = self._saturated(clients)
        with self._loaded_server("--provider", "cpu", module="benchmarks.harness.null_server") as (
            _,
            clients,
        ):
            frames = self._saturated(clients)
        return {
            "grpc_first_chunk_ms": _quantiles(some["first_chunk_ms"]),
            "grpc_first_chunk_streams": self.sizes.first_chunk_streams,
            "grpc_streams": most,
            "grpc_streams_first_chunk_ms": _quantiles(last["first_chunk_ms"]),
            "grpc_frames_per_second": saturated,
            "grpc_ceiling_streams": round(frames / self.frame_rate, 1),
        }

    def processes(self) -> dict[str, Any]:
        """Servers of several processes on one device: frames a second, and the most streams."""
        pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
        found: dict[str, Any] = {"mps": (pipes / "control").exists()}
        options = ("--provider", self.args.provider, "--precision", self.best)
        for n_processes in self.sizes.n_processes:
            several = (*options, "--processes", str(n_processes))
            with self._loaded_server(*several, n_connections=CONNECTIONS) as (_, clients):
                frames = self._saturated(clients)
                most, last = 0, None
                for share in (0.5, 0.6, 0.7, 0.8, 0.9):
                    n = int(share * frames / self.frame_rate)
                    trial = self._play(clients, n, self.sizes.probe_seconds)
                    if not trial["is_good"]:
                        break
                    most, last = n, trial
            found[str(n_processes)] = {
                "frames_per_second": frames,
                "grpc_streams": most,
                "grpc_streams_first_chunk_ms": _quantiles(last["first_chunk_ms"] if last else ()),
            }
        return found

    def streams(self) -> dict[str, Any]:
        """Streams of codes in process: the first chunks at some, and the most of them."""
        sizes = self.sizes
        sessions = open_at(self.bundle, 0, self.best, self.args.provider)
        player = Player(self.bundle, sessions, sizes.n_slots, CodesOnly(self.bundle))
        try:
            player.times_real_time(1)
            some = player.try_streams(sizes.first_chunk_streams, sizes.probe_seconds)
            most = player.most_streams(max(1, sizes.n_slots // 4), sizes.probe_seconds, sizes.stream_seconds)
        finally:
            player.close()
        return {
            "real_time_streams": most.n_streams,
            "real_time_stream_seconds": sizes.stream_seconds,
            "first_chunk_streams": some.n_streams,
            "first_chunk_ms": _quantiles(some.first_chunk_ms),
        }

    def soak(self) -> dict[str, Any]:
        """SIGHUP with another bundle every few seconds, while every slot has a note."""
        seconds, n_reloads = self.sizes.soak_seconds, 0
        with tempfile.TemporaryDirectory() as folder:
            link, turned = Path(folder, "current"), Path(folder, "turned")
            targets = [renew(self.bundle.path, Path(folder, "renewed")), self.bundle.path]
            link.symlink_to(targets[1])
            with self._loaded_server("--provider", self.args.provider, bundle=link) as (server, clients):
                self._ask_to_saturate(clients, seconds)
                end = time.monotonic() + seconds
                while time.monotonic() < end or n_reloads == 0:
                    turned.symlink_to(targets[n_reloads % 2])
                    turned.replace(link)
                    os.kill(server.pid, signal.SIGHUP)
                    n_reloads += 1
                    while server.log().count("serves now") < n_reloads and time.monotonic() < end + PATIENCE:
                        time.sleep(0.1)
                found = [client.read() for client in clients]
                log = server.log()
        return {
            "seconds": seconds,
            "hangups": n_reloads,
            "reloaded": log.count("serves now"),
            "engine_died": "has died" in log or "has failed" in log,
            "frames_per_second": round(sum(each["frames_per_second"] for each in found), 1),
        }

    def others(self) -> dict[str, Any]:
        """The provider's other precisions: right, and how fast."""
        return {
            precision: {**self._correctness(precision), "step_ms": self._step_ms(precision)}
            for precision in self.args.precisions[1:]
        }

    def _correctness(self, precision: str) -> dict[str, Any]:
        sessions = open_at(self.bundle, 0, precision, self.args.provider)
        written = write_notes(self.bundle, sessions, self.sizes.n_notes, self.n_steps)
        found = dataclasses.asdict(compare(Base.open(self.bundle.path).model, written))
        return {"precision": precision, "graph": sessions.decoder_graph, **found}

    def _step_ms(self, precision: str) -> dict[str, Any]:
        sessions = open_at(self.bundle, 0, precision, self.args.provider)
        step = OurStep(sessions, self.bundle, self.sizes.n_slots, fast=True)
        position = self.bundle.manifest.model.max_positions // 2
        found = {}
        for n_rows in step.runner.buckets:
            times = interleave(
                {"whole": _whole(step, n_rows, position), **_parts(step, n_rows)}, self.sizes.plan
            )
            found[str(n_rows)] = {name: round(1e3 * times.seconds(name), 4) for name in times.runs}
        times = interleave({"admission": lambda: step.runner.admit([(0, NOTE)])}, self.sizes.plan)
        return found | {"admission": round(1e3 * times.seconds("admission"), 4)}

    @contextlib.contextmanager
    def _loaded_server(
        self,
        *options: str,
        bundle: Path | None = None,
        module: str = "timbrel_server",
        n_connections: int = 1,
    ) -> Any:
        """A server on half of the cores, and clients on the other."""
        cores = usable_cores()
        half = max(1, len(cores) // 2)
        options = (*options, "--slots", str(self.sizes.n_slots), "--threads", "1", "--queue", "4096")
        server = BenchServer(bundle or self.bundle.path, cores[:half], *options, module=module)
        n_clients = 1 if self.args.dry_run else max(1, len(cores) - half)
        clients = [
            HelperProcess(
                "benchmarks.harness.load", [server.address, str(seed), str(n_connections)], cores[-half:]
            )
            for seed in range(n_clients)
        ]
        try:
            yield server, clients
        finally:
            for client in clients:
                client.close()
            server.close()

    def _play(self, clients: Sequence[HelperProcess], n_streams: int, seconds: float) -> dict[str, Any]:
        """As many notes at once, on average, as there would be streams."""
        rate = n_streams / MEAN_NOTE_SECONDS / len(clients)
        for client in clients:
            client.send(what="poisson", rate=rate, seconds=seconds, shortest=1.0, longest=3.0)
        found = [client.read() for client in clients]
        return {
            "is_good": sum(each["late"] + each["refused"] for each in found) == 0,
            "first_chunk_ms": [ms for each in found for ms in each["first_chunk_ms"]],
        }

    def _ask_to_saturate(self, clients: Sequence[HelperProcess], seconds: float) -> None:
        n_at_once = -(-self.sizes.n_slots // len(clients))
        for client in clients:
            client.send(what="saturate", n_at_once=n_at_once, seconds=seconds, shortest=1.0, longest=3.0)

    def _saturated(self, clients: Sequence[HelperProcess]) -> float:
        """Frames a second, once every slot has a note."""
        self._ask_to_saturate(clients, self.sizes.probe_seconds)
        return round(sum(float(client.read()["frames_per_second"]) for client in clients), 1)


ALL: Mapping[str, Callable[[Stages], dict[str, Any]]] = {
    stage.__name__: stage
    for stage in (
        *(Stages.device, Stages.agreement, Stages.gpu_tests, Stages.correctness, Stages.step_ms),
        *(Stages.server, Stages.processes, Stages.streams, Stages.soak, Stages.others),
    )
}


def _whole(step: OurStep, n_rows: int, position: int) -> Callable[[], object]:
    """A step as the engine takes it, of arrays: the lists of `OurStep.work` would take as long again."""
    codec = step.runner._codec
    prepared = itertools.cycle(
        [
            step_at(np.array(given.tokens), position)
            for given in itertools.islice(
                step_inputs(n_rows, codec.n_codebooks, codec.codebook_size), N_STEPS
            )
        ]
    )
    return lambda: step.runner.step(next(prepared))


def _parts(step: OurStep, n_rows: int) -> dict[str, Callable[[], object]]:
    """A step's parts, one by one; "launch" returns before the device has done the work that "wait" awaits."""
    runner = step.runner
    binding, session = runner._bindings[n_rows, 0], runner._sessions.decoder
    options = run_options(n_rows) if runner._sessions.captures else None
    if options is not None:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def launch() -> None:
        session.run_with_iobinding(binding, options)

    def launch_and_wait() -> None:
        launch()
        binding.synchronize_outputs()

    return {
        "launch": launch,
        "launch_and_wait": launch_and_wait,
    }


def _quantiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """None of them where there are no figures."""
    found = np.quantile(milliseconds, [0.5, 0.95, 0.99]) if milliseconds else ()
    return {name: round(float(q), 2) for name, q in zip(("p50", "p95", "p99"), found, strict=False)}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="shorter")
    add("--dry-run", action="store_true", help="the same code at tiny sizes, on the CPU")
    add("--provider", choices=("cpu", "cuda"), help="default: cuda, or cpu with --dry-run")
    add("--bundle", type=Path, help="bundle to measure (default: the one that ships)")
    add("--stages", nargs="+", choices=tuple(ALL), default=list(ALL), help="default: all")
    add("--out", type=Path, help="file that the stages' lines are added to")
    add(
        "--precisions",
        nargs="+",
        help="of the decoder, the streams' first (default: all that the provider has)",
    )
    args = parser.parse_args(argv)
    args.provider = args.provider or ("cpu" if args.dry_run else "cuda")
    args.precisions = args.precisions or list(DECODER_GRAPHS[CPU if args.provider == "cpu" else CUDA])
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    return args


def run_stage(stages: Stages, name: str, out: Path | None) -> dict[str, Any]:
    """Runs one, and tells what it found, or why it failed."""
    started = time.monotonic()
    try:
        found = ALL[name](stages)
    except (Exception, SystemExit) as error:
        found = {"error": f"{type(error).__name__}: {one_line(error)}"}
    line = json.dumps({"stage": name, "seconds": round(time.monotonic() - started, 1), name: found})
    print(line, flush=True)
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return found


def main() -> None:
    """Measures stage by stage, prints bars and the line of JSON."""
    args = parse_arguments()
    report = Report("gpu", quick=args.quick)
    if args.provider == "cuda" and (reason := obstacle(CUDA)):
        print(f"no GPU here: {reason}; --dry-run runs the same code on the CPU")
        report.finish({"gpu": False, "dry_run": False, "reason": reason})
        return
    sizes = TINY if args.dry_run else SHORT if args.quick else WHOLE
    stages = Stages(args, sizes)
    found = {name: run_stage(stages, name, args.out) for name in args.stages}
    head = {
        "gpu": not args.dry_run,
        "dry_run": args.dry_run,
        "provider": args.provider,
        "model": stages.bundle.manifest.name,
        "stages": args.stages,
    }
    report.finish(head | found, [] if args.dry_run else _bars(found))
    if any("error" in each for each in found.values()):
        sys.exit(1)


def _bars(found: Mapping[str, Mapping[str, Any]]) -> list[Bar]:
    streams, server = found.get("streams", {}), found.get("server", {})
    kl = found.get("correctness", {}).get("mean_kl")
    first = server.get("grpc_first_chunk_ms", {}).get("p95")
    return [
        Bar("mean KL per token", kl, MAX_MEAN_KL, at_most=True),
        Bar("real-time streams of codes in process", streams.get("real_time_streams"), STREAMS_WANTED),
        Bar("streams through gRPC, one process", server.get("grpc_streams"), STREAMS_WANTED),
        Bar("first chunk through gRPC at 100 streams, p95 ms", first, FIRST_CHUNK_MS, at_most=True),
    ]


if __name__ == "__main__":
    main()
