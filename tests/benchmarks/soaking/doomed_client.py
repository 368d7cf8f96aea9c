"""`python -m benchmarks.soaking.doomed_client HOST:PORT`: asks for notes until it is killed."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import grpc

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

N_CALLS = 4
LIFE_SECONDS = 30.0


def main(address: str) -> None:
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


if __name__ == "__main__":
    main(sys.argv[1])
