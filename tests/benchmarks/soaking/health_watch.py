"""`python -m benchmarks.soaking.health_watch HOST:PORT`: asks a server how it is until its input ends.

A process of its own, so that a busy load generator is not taken for a slow server. It ends with one line of
JSON: milliseconds of every answer, and how many calls failed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE_SECONDS = 0.05
TIMEOUT_SECONDS = 10.0


def watch(address: str, over: threading.Event) -> dict[str, Any]:
    """Asks until `over`."""
    milliseconds: list[float] = []
    n_failed = 0
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        stub.Check(request, timeout=TIMEOUT_SECONDS)  # connects
        while not over.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            try:
                stub.Check(request, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError:
                n_failed += 1
            milliseconds.append(round((time.perf_counter() - began) * 1e3, 3))
    return {"ms": milliseconds, "failed": n_failed}


def main() -> None:
    """Reads nothing but the end of the input."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    print(json.dumps(watch(sys.argv[1], over)), flush=True)


if __name__ == "__main__":
    main()
