"""Callers in processes of their own: `python -m benchmarks.soaking.callers KIND HOST:PORT`.

`watch_health` asks a server how it is until its input ends: apart, so that a busy load generator is not taken
for a slow server. It ends with one line of JSON: when each call began by the system's steady clock and the
milliseconds until its answer, and how many calls failed.
`ask_on` asks for notes until it is killed. `flood` makes one attack after another, from another network and
with the lowest priority, until it is killed; when one is over it says when it began and ended, and its name.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from typing import Any

import grpc
from benchmarks.harness.floods import ATTACKS, ELSEWHERE, PEACEFUL, UNBOUNDED, Target
from grpc_health.v1 import health_pb2, health_pb2_grpc

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PAUSE_SECONDS = 0.05
TIMEOUT_SECONDS = 10.0

N_CALLS = 4
LIFE_SECONDS = 30.0

LOWEST_PRIORITY = 19


def watch_health(address: str) -> None:
    """Reads nothing but the end of the input."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    print(json.dumps(_time_checks(address, over)), flush=True)


def ask_on(address: str) -> None:
    """Ends by itself, should nobody kill it."""
    over = time.monotonic() + LIFE_SECONDS
    with grpc.insecure_channel(address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=2.0)
        while time.monotonic() < over:
            calls = [stub.Generate(note, timeout=LIFE_SECONDS) for _ in range(N_CALLS)]
            for call in calls:
                with contextlib.suppress(grpc.RpcError):
                    next(call)
            time.sleep(0.2)


def flood(address: str) -> None:
    """Makes all attacks in turn."""
    os.nice(LOWEST_PRIORITY)
    with grpc.insecure_channel(address) as channel:
        model: Any = pb_grpc.SynthesizerStub(channel)
        bundle = model.GetModel(pb.GetModelRequest()).manifest.name
    target = Target(address, source=ELSEWHERE, bundle=bundle)
    for name in itertools.cycle(name for name in ATTACKS if name not in (*PEACEFUL, *UNBOUNDED)):
        began = time.monotonic()
        ATTACKS[name](target)
        print(began, time.monotonic(), name, flush=True)


def _time_checks(address: str, over: threading.Event) -> dict[str, Any]:
    """Asks until `over`."""
    answers: list[tuple[float, float]] = []
    n_failed = 0
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        stub.Check(request, timeout=TIMEOUT_SECONDS)  # connects
        while not over.wait(PAUSE_SECONDS):
            began = time.monotonic()
            try:
                stub.Check(request, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError:
                n_failed += 1
            answers.append((began, round((time.monotonic() - began) * 1e3, 3)))
    return {"answers": answers, "failed": n_failed}


if __name__ == "__main__":
    {"watch_health": watch_health, "ask_on": ask_on, "flood": flood}[sys.argv[1]](sys.argv[2])
