"""A server under attack: what it takes of memory meanwhile, how long others wait, and what a greedy caller
leaves them.

Examples:
    python tests/benchmarks/attack.py                       all of it on the tiny bundle; six minutes or so
    python tests/benchmarks/attack.py --quick               at a tenth of the size
    python tests/benchmarks/attack.py --parts fairness      one part: memory, fairness or restarts
    python tests/benchmarks/attack.py --times 10            ten times the size
    python tests/benchmarks/attack.py --parts memory --attacks pings "unread files"

Attackers are processes of their own on the same cores as the server and who is attacked. Strangers have no
token; ann has one and attacks, bob has one and is measured. Attackers have the lowest priority, since they
would bring machines of their own. kept is bob's rate in ann's company over his rate alone, in short turns of
both, for the machine is not the same from one second to the next. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc
from benchmarks.harness.floods import (
    ATTACK_SECONDS,
    ATTACKS,
    MIB,
    UNBOUNDED,
    Target,
    inference,
    note,
    recording,
)
from benchmarks.harness.report import Bar, Report
from envoy import Balancer, find_envoy
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_floods import ServerMemory
from server_process import ServerProcess
from waiting import wait_for

import timbrel
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

TINY_BUNDLE = Path(__file__).resolve().parents[1] / "data" / "tiny_bundle"
ANN, BOB = "token-of-ann", "token-of-bob"
FRESH = (("grpc.use_local_subchannel_pool", 1),)
PATIENCE_SECONDS = 30.0

AFTER_SECONDS = 10.0
FAIR_SECONDS = 1.0
N_ROUNDS = 9
SETTLING_SECONDS = 0.3
FORGETTING_SECONDS = 1.2
"""The server minds company for a second after it has gone."""
GREED = 100
N_AT_ONCE = 64
WARMING_SECONDS = 5.0
LOWEST_PRIORITY = 19
N_RESTARTS = 20
N_CALLERS = 8

MOST_VIRTUAL_BYTES = 2 << 30
"""Of address space beyond what the server begins with: threads reserve some; what runs away ends there."""

LONGEST_HEALTH_SECONDS = 0.1
BARS = (
    ("peak MiB", "peak_mib", 400.0),
    ("MiB left after", "left_mib", 50.0),
    ("slowest note, s", "note_seconds", 1.0),
    ("slowest health, s", "health_seconds", LONGEST_HEALTH_SECONDS),
)
"""Of the worst row: what it is called, the row's figure, and the most that it may be."""
LEAST_KEPT = 0.4


class Probe:
    """Asks for one thing on and on, in a thread, and keeps how long it took."""

    def __init__(self, address: str, ask: Callable[[grpc.Channel], None]) -> None:
        self._over = threading.Event()
        self._address = address
        self._ask = ask
        self.seconds: list[float] = []
        self.faults: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> float:
        """Returns the longest time that it took."""
        self._over.set()
        self._thread.join()
        return max(self.seconds, default=PATIENCE_SECONDS)

    def share_within(self, seconds: float) -> float:
        """Of the times that it asked."""
        return sum(each <= seconds for each in self.seconds) / max(1, len(self.seconds))

    def _run(self) -> None:
        with grpc.insecure_channel(self._address, FRESH) as channel:
            while not self._over.wait(0.05):
                began = time.monotonic()
                try:
                    self._ask(channel)
                except grpc.RpcError as error:
                    self.faults[error.code().name] += 1
                self.seconds.append(time.monotonic() - began)


def ask_for_note(channel: grpc.Channel) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    list(stub.Generate(note(0.3), metadata=bearer(BOB), timeout=PATIENCE_SECONDS))


def ask_for_health(channel: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


def _last_in_line(work: Callable[..., None], *arguments: Any) -> None:
    os.nice(LOWEST_PRIORITY)
    work(*arguments)


@contextlib.contextmanager
def in_process(work: Callable[..., None], *arguments: Any) -> Iterator[multiprocessing.process.BaseProcess]:
    """Runs an attacker."""
    process = multiprocessing.get_context("spawn").Process(
        target=_last_in_line, args=(work, *arguments), daemon=True
    )
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


@contextlib.contextmanager
def serving() -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens"
        tokens.write_text(f"ann:{ANN}\nbob:{BOB}\n")
        tokens.chmod(0o600)
        server = ServerProcess(TINY_BUNDLE, "--token-file", str(tokens), is_forked=False)
        try:
            for kind in WARMING:  # which loads and keeps what they need: no attacker's doing
                asyncio.run(ask_on_and_on(server.address, BOB, kind, N_AT_ONCE, WARMING_SECONDS))
            yield server
        finally:
            server.close()


def measure_memory(times: float, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        with serving() as server:
            memory = ServerMemory(server.process.pid)
            memory.hold_to(MOST_VIRTUAL_BYTES)
            memory.forget_peak()
            with in_process(ATTACKS[name], Target(server.address, times, ANN)) as process:
                notes, health = Probe(server.address, ask_for_note), Probe(server.address, ask_for_health)
                process.join(ATTACK_SECONDS * max(1.0, times) + 30)
                slowest_note, slowest_health = notes.stop(), health.stop()
            peak = memory.peak
            time.sleep(AFTER_SECONDS)
            row = {
                "attack": name,
                "before_mib": round(memory.before / MIB),
                "peak_mib": round(peak / MIB),
                "left_mib": round((memory.resident - memory.before) / MIB),
                "note_seconds": round(slowest_note, 3),
                "note_median": round(statistics.median(notes.seconds), 3),
                "health_seconds": round(slowest_health, 3),
                "health_median": round(statistics.median(health.seconds), 3),
                "health_in_time": round(health.share_within(LONGEST_HEALTH_SECONDS), 3),
                "notes": len(notes.seconds),
                "faults": dict(notes.faults + health.faults),
            }
            rows.append(row)
            print(row, flush=True)
    return rows


# Fairness: ann asks GREED times at once for what bob asks once.

Ask = Callable[[grpc.aio.Channel, str], Any]


async def ask_generate(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    async for _ in stub.Generate(note(), metadata=bearer(token)):
        pass


async def ask_audio(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    async for _ in stub.Generate(note(audio=pb.AUDIO_FORMAT_PCM16), metadata=bearer(token)):
        pass


async def ask_long_audio(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    async for _ in stub.Generate(note(2.4, pb.AUDIO_FORMAT_FLOAT32), metadata=bearer(token)):
        pass


async def ask_batch(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    items = [pb.GenerateBatchRequest(id=number, note=note()) for number in range(8)]
    async for _ in stub.GenerateBatch(iter(items), metadata=bearer(token)):
        pass


async def ask_locate(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    await stub.Locate(RECORDING, metadata=bearer(token))


async def ask_file(channel: grpc.aio.Channel, token: str) -> None:
    stub: Any = pb_grpc.SynthesizerStub(channel)
    async for _ in stub.GetFile(pb.GetFileRequest(name="codec.safetensors"), metadata=bearer(token)):
        pass


async def ask_infer(channel: grpc.aio.Channel, token: str) -> None:
    method: Any = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        oip.ModelInferRequest.SerializeToString,
        oip.ModelInferResponse.FromString,
    )
    await method(inference(4, 0.5), metadata=bearer(token))


RECORDING = recording(2.0)
KINDS: dict[str, Ask] = {
    "Generate": ask_generate,
    "audio": ask_audio,
    "GenerateBatch": ask_batch,
    "Locate": ask_locate,
    "GetFile": ask_file,
    "ModelInfer": ask_infer,
}
WARMING: dict[str, Ask] = {"long audio": ask_long_audio, "Locate": ask_locate}


async def ask_on_and_on(
    address: str,
    token: str,
    kind: str,
    n_at_once: int,
    seconds: float,
    is_on: Any = None,
    n_asked: Any = None,
) -> int:
    """Returns how often it was answered. Where `is_on` is given, asks nothing while this is not set, and
    `n_asked` counts what is not answered yet."""
    ask, n_answered = (KINDS | WARMING)[kind], 0
    end = time.monotonic() + seconds

    def count(change: int) -> None:
        if n_asked is not None:
            n_asked.value += change

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal n_answered
        while time.monotonic() < end:
            if is_on is not None and not is_on.is_set():
                await asyncio.sleep(SETTLING_SECONDS / 10)
                continue
            count(1)
            try:
                await asyncio.wait_for(ask(channel, token), max(0.01, end - time.monotonic()))
                n_answered += 1
            except grpc.aio.AioRpcError as error:
                # A stream that is refused while it is being written to is INTERNAL to gRPC's client.
                if error.code() not in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL):
                    raise
                await asyncio.sleep(0.1)
            except TimeoutError:
                return
            finally:
                count(-1)

    async with contextlib.AsyncExitStack() as channels:
        opened = [
            await channels.enter_async_context(grpc.aio.insecure_channel(address, FRESH))
            for _ in range(max(1, n_at_once // 50))
        ]
        await asyncio.gather(*(one(opened[number % len(opened)]) for number in range(n_at_once)))
    return n_answered


def be_greedy(address: str, kind: str, is_on: Any, n_asked: Any) -> None:
    asyncio.run(ask_on_and_on(address, ANN, kind, GREED, 1e6, is_on, n_asked))


def measure_fairness(seconds: float) -> list[dict[str, Any]]:
    """Alone and in company in turn, N_ROUNDS times."""
    rows = []
    spawning = multiprocessing.get_context("spawn")
    is_greedy, n_asked = spawning.Event(), spawning.Value("i", 0)
    with serving() as server:

        def rate_of(kind: str) -> int:
            return asyncio.run(ask_on_and_on(server.address, BOB, kind, 1, seconds))

        for kind in KINDS:
            rounds = []
            n_asked.value = 0
            with in_process(be_greedy, server.address, kind, is_greedy, n_asked):
                for _ in range(N_ROUNDS):
                    is_greedy.clear()
                    time.sleep(SETTLING_SECONDS)
                    wait_for(lambda: n_asked.value == 0, "ann to be answered")
                    time.sleep(FORGETTING_SECONDS)
                    alone = rate_of(kind)
                    is_greedy.set()
                    time.sleep(SETTLING_SECONDS)
                    rounds.append((alone, rate_of(kind)))
            n_alone, n_beside = map(sum, zip(*rounds, strict=True))
            kept = n_beside / max(1, n_alone)
            rows.append({"kind": kind, "alone_beside": rounds, "kept": round(kept, 2)})
            print(rows[-1], flush=True)
    return rows


def measure_restarts(n_restarts: int, envoy: str | None = None) -> dict[str, Any]:
    """Callers with the project's client, while one server ends and another begins at the same address.

    Args:
        envoy: the program, where it is to stand before two servers, which are restarted in turn.
    """
    faults: Counter[str] = Counter()
    n_notes = 0
    over = threading.Event()
    servers = [ServerProcess(TINY_BUNDLE, is_forked=False) for _ in range(1 if envoy is None else 2)]
    address, until_over = servers[0].address, contextlib.ExitStack()
    if envoy is not None:
        folder = until_over.enter_context(tempfile.TemporaryDirectory())
        balancer = until_over.enter_context(contextlib.closing(Balancer(envoy, servers, Path(folder))))
        wait_for(lambda: balancer.n_healthy() == len(servers), "every server to be in turn")
        address = f"127.0.0.1:{balancer.port}"

    def ask() -> None:
        nonlocal n_notes
        while not over.is_set():
            try:
                with timbrel.Client(address) as client:
                    while not over.is_set():
                        client.generate((0.1, 0.2), seconds=0.3)
                        n_notes += 1
            except Exception as error:
                faults[type(error).__name__] += 1

    callers = [threading.Thread(target=ask) for _ in range(N_CALLERS)]
    for caller in callers:
        caller.start()
    try:
        for number in range(n_restarts):
            before, end = n_notes, time.monotonic() + PATIENCE_SECONDS
            while n_notes < before + 20 and time.monotonic() < end:
                time.sleep(0.01)
            server = servers[number % len(servers)]
            server.signal(signal.SIGTERM)
            server.wait()
            server.close()
            port = server.address.rpartition(":")[2]
            servers[number % len(servers)] = ServerProcess(TINY_BUNDLE, "--port", port, is_forked=False)
            if envoy is not None:
                wait_for(lambda: balancer.n_healthy() == len(servers), "every server to be in turn")
    finally:
        over.set()
        for caller in callers:
            caller.join()
        until_over.close()
        for server in servers:
            server.close()
    row = {"restarts": n_restarts, "envoy": envoy is not None, "notes": n_notes, "faults": dict(faults)}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, and four restarts")
    parser.add_argument("--times", type=float, default=1.0, help="of the size (default 1)")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS, metavar="NAME")
    parser.add_argument("--parts", nargs="+", default=["memory", "fairness", "restarts"])
    args = parser.parse_args()
    report = Report("attack", quick=args.quick)
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    if "memory" in args.parts:
        rows = figures["memory"] = measure_memory(0.1 if args.quick else args.times, args.attacks)
        bounded = [row for row in rows if row["attack"] not in UNBOUNDED]
        for name, figure, most in BARS if bounded else ():
            bars.append(Bar(name, max(row[figure] for row in bounded), most, at_most=True))
    if "fairness" in args.parts:
        rows = figures["fairness"] = measure_fairness(FAIR_SECONDS / 4 if args.quick else FAIR_SECONDS)
        bars.append(Bar("least kept", min(row["kept"] for row in rows), LEAST_KEPT))
    if "restarts" in args.parts:
        n_restarts = 4 if args.quick else N_RESTARTS
        row = figures["restarts"] = measure_restarts(n_restarts)
        others = sum(n for kind, n in row["faults"].items() if kind != "UnavailableError")
        bars.append(Bar("errors of restarts", others, 0, at_most=True))
        if (envoy := find_envoy()) is None:
            print("restarts behind Envoy left out: there is no envoy (pip install 'timbrel[dev]')")
        else:
            row = figures["restarts_behind_envoy"] = measure_restarts(n_restarts, envoy)
            bars.append(Bar("errors behind Envoy", sum(row["faults"].values()), 0, at_most=True))
    report.finish(figures, bars)


if __name__ == "__main__":
    main()
