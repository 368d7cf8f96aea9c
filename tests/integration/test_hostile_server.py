"""A server that means harm gets one clear error out of the client, and neither its memory nor its disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from hostile_server import HostileServer, serving

import timbrel

CENTRE = (0.0, 0.0)


@pytest.fixture
def server(tiny_bundle: Path) -> Iterator[HostileServer]:
    with serving(tiny_bundle) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(server: HostileServer) -> Iterator[timbrel.Client]:
    with timbrel.Client(server.address, timeout=20.0) as client:
        yield client


def test_what_is_not_spoilt_is_answered_well(client: timbrel.Client) -> None:
    """Otherwise the tests below would prove nothing."""
    assert len(client.generate(CENTRE).audio) > 0
    assert len(next(iter(client.generate_many([timbrel.NoteRequest(CENTRE)]))).audio) > 0
    assert sum(len(chunk) for chunk in client.stream(CENTRE)) > 0
    with client.play() as player:
        assert sum(len(chunk) for chunk in player.note_on(CENTRE)) > 0


CALLS: dict[str, Callable[[timbrel.Client], object]] = {
    "GetModel": lambda client: client.model(),
    "GetTimbreMap": lambda client: client.timbre_map(),
    "GetFile": lambda client: client.prepare(),
    "Generate": lambda client: client.generate(CENTRE),
    "GenerateBatch": lambda client: list(client.generate_many([timbrel.NoteRequest(CENTRE)])),
}

INFLATED_BYTES = 128 << 20

ASK = """
import resource, sys, timbrel
calm = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    timbrel.Client(sys.argv[1], timeout=20.0).model()
except timbrel.TimbrelError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - calm)
"""


def test_a_small_message_that_inflates_to_a_large_one_is_refused_unopened(tiny_bundle: Path) -> None:
    with serving(tiny_bundle, grpc.Compression.Gzip) as server:
        server.answers["GetModel"] = lambda _: [bytes(INFLATED_BYTES)]
        done = subprocess.run([sys.executable, "-c", ASK, server.address], capture_output=True, text=True)
    error, more_kilobytes = done.stdout.splitlines()
    assert "cannot be decoded" in error or "disabled" in error
    assert int(more_kilobytes) < INFLATED_BYTES >> 11


def test_compressed_replies_are_refused_however_small(tiny_bundle: Path) -> None:
    with (
        serving(tiny_bundle, grpc.Compression.Gzip) as server,
        timbrel.Client(server.address) as client,
        pytest.raises(timbrel.ServerError, match=r"cannot be decoded|disabled"),
    ):
        client.model()


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f"])
def test_undecodable_replies_are_an_error_of_the_servers(
    client: timbrel.Client, server: HostileServer, method: str, body: bytes
) -> None:
    server.answers[method] = lambda _: [body]
    with pytest.raises(timbrel.ServerError, match="cannot be decoded"):
        CALLS[method](client)
