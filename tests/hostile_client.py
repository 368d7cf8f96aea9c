"""A client that is killed while notes sound: opens so many streams on HOST:PORT, says so, and reads for ever.

python hostile_client.py HOST:PORT N_STREAMS
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import grpc
from hostile_messages import NOTE

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc


def read_for_ever(stub: Any, heard: threading.Semaphore) -> None:
    """Asks for one long note after the other."""
    long = pb.GenerateRequest()
    long.CopyFrom(NOTE)
    long.seconds = 2.4
    while True:
        for _ in stub.GenerateBatch(iter([pb.GenerateBatchRequest(id=i, note=long) for i in range(8)])):
            heard.release()


def main() -> None:
    """Prints one line once every stream has heard something."""
    address, n_streams = sys.argv[1], int(sys.argv[2])
    stub = pb_grpc.SynthesizerStub(grpc.insecure_channel(address))
    heard = threading.Semaphore(0)
    for _ in range(n_streams):
        threading.Thread(target=read_for_ever, args=(stub, heard), daemon=True).start()
    for _ in range(n_streams):
        heard.acquire()
    print("sounding", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
