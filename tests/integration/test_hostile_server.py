"""A server that means harm gets one clear error out of the client, and neither its memory nor its disk."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
from google.rpc import error_details_pb2, status_pb2
from hostile_server import HostileServer, serving
from onnx import TensorProto, helper
from waiting import wait_for

import timbrel
from timbrel.aio.connection import Connection
from timbrel.files import cache_folder
from timbrel_bundle.errors import UNPRINTABLE
from timbrel_bundle.layout import CODEC_DECODER
from timbrel_bundle.manifest import bundle_hash
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

CENTRE = (0.0, 0.0)

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
"""Sets a terminal's title, clears it, and turns the direction of writing."""

Run = Callable[..., tuple[int, str, str]]
Spoil = Callable[[pb.Manifest], object]


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
def recording() -> tuple[Any, int]:
    """[samples] and their rate."""
    return np.sin(np.arange(8000) / 10).astype(np.float32), 16_000


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


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, None])
def test_a_large_message_is_refused_unopened_however_it_is_packed(
    tiny_bundle: Path, compression: grpc.Compression | None
) -> None:
    with serving(tiny_bundle, compression) as server:
        server.answers["GetModel"] = lambda _: [bytes(INFLATED_BYTES)]
        done = subprocess.run([sys.executable, "-c", ASK, server.address], capture_output=True, text=True)
    error, more_kilobytes = done.stdout.splitlines()
    assert any(why in error for why in ("cannot be decoded", "disabled", "larger than max"))
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


def _set(section: str, **fields: int) -> Spoil:
    return lambda manifest: getattr(manifest, section).MergeFrom(
        type(getattr(manifest, section))(**fields)  # type: ignore[operator]
    )


ABSURD: dict[str, tuple[Spoil, str]] = {
    "a cache of terabytes": (_set("model", max_positions=2**31), "max_positions 2147483648"),
    "a cache of many heads": (
        _set("model", max_positions=2**18, head_dim=1024, n_kv_heads=256, n_decoder_layers=256),
        "cache takes",
    ),
    "endless notes": (_set("model", max_frames=2**32 - 1), "max_frames 4294967295"),
    "long frames": (_set("codec", hop_length=2**31), "hop_length 2147483648"),
    "long notes": (
        lambda manifest: (
            _set("codec", hop_length=2**16)(manifest),
            _set("model", max_frames=2**17, max_positions=2**17 + 10)(manifest),
        ),
        "has notes of",
    ),
    "many codebooks": (
        lambda manifest: (
            _set("codec", n_codebooks=10**6)(manifest),
            manifest.codec.silence.extend([0] * (10**6 - len(manifest.codec.silence))),
        ),
        "n_codebooks 1000000",
    ),
    "a large state": (
        lambda manifest: manifest.codec.decoder_state.add(name="s", shape=[2**20] * 3, dtype="float32"),
        "numbers",
    ),
    "a state of many axes": (
        lambda manifest: manifest.codec.decoder_state.add(
            name="s", shape=[2**32 - 1] * 500_000, dtype="float32"
        ),
        "axes",
    ),
    "a delay of hours": (_set("codec", delay_samples=2**32 - 1), "delay_samples"),
    "a lead of hours": (_set("codec", lead_frames=2**32 - 1), "lead_frames"),
    "keys held for ever": (lambda manifest: setattr(manifest.ranges, "seconds_max", float("inf")), "seconds"),
    "no number": (lambda manifest: setattr(manifest.ranges, "seconds_max", float("nan")), "seconds"),
    "an hour a sample": (_set("codec", sample_rate=1), "sample_rate 1,"),
    "no hash": (lambda manifest: setattr(manifest.files[0], "sha256", "x"), "SHA-256"),
    "a name that acts": (lambda manifest: setattr(manifest, "name", ESCAPE), "cannot be printed"),
    "a licence that acts": (
        lambda manifest: manifest.training.sources.add(name="x", licence=ESCAPE),
        "cannot be printed",
    ),
    "a name of a megabyte": (lambda manifest: setattr(manifest, "name", "x" * 10**6), "1000000 characters"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_an_absurd_manifest_is_refused(client: timbrel.Client, server: HostileServer, case: str) -> None:
    spoil, fault = ABSURD[case]
    spoil(server.model.manifest)
    with pytest.raises(timbrel.ServerError, match=fault) as error:
        client.model()
    assert not UNPRINTABLE.search(str(error.value))


def test_an_engine_that_acts_on_terminals_is_refused(client: timbrel.Client, server: HostileServer) -> None:
    server.model.engine.server_version = ESCAPE
    with pytest.raises(timbrel.ServerError, match=r"engine .* cannot be printed"):
        client.model()


def _point(**fields: Any) -> Callable[[pb.TimbreMap], object]:
    return lambda timbre_map: timbre_map.points[3].MergeFrom(pb.TimbrePoint(**fields))


BAD_MAPS: dict[str, tuple[Callable[[pb.TimbreMap], object], str]] = {
    "no number": (_point(x=float("nan")), "no point of the disc"),
    "infinitely far": (_point(y=float("inf")), "no point of the disc"),
    "outside": (_point(x=1.0, y=1.0), "no point of the disc"),
    "no pitches": (_point(pitch_min=2**31), "no range"),
    "acts": (_point(family=ESCAPE), "cannot be printed"),
    "long": (_point(instrument="x" * 10**6), "1000000 characters"),
    "many": (lambda timbre_map: timbre_map.points.extend([pb.TimbrePoint()] * 20_000), "points"),
}


@pytest.mark.parametrize("arguments", [["map"], ["map", "--out", "map.png"], ["map", "--json"], ["info"]])
@pytest.mark.parametrize("case", BAD_MAPS)
def test_a_map_that_is_none_ends_commands_with_one_line(
    run: Run, server: HostileServer, arguments: list[str], case: str
) -> None:
    spoil, fault = BAD_MAPS[case]
    spoil(server.map.timbre_map)
    status, out, error = run(*arguments, "--server", server.address)
    assert (status, out) == (2, "")
    assert error.startswith("timbrel: the server's timbre map") and fault in error
    assert not UNPRINTABLE.search(error.removesuffix("\n")) and len(error) < 400


def test_located_neighbours_are_checked_too(
    client: timbrel.Client, server: HostileServer, recording: tuple[Any, int]
) -> None:
    assert client.locate(*recording).nearest
    server.located.neighbours[0].distance = float("nan")
    with pytest.raises(timbrel.ServerError, match="distance"):
        client.locate(*recording)
    server.located.neighbours[0].MergeFrom(pb.Neighbour(point=pb.TimbrePoint(instrument=ESCAPE), distance=1))
    with pytest.raises(timbrel.ServerError, match="cannot be printed"):
        client.locate(*recording)


def test_messages_of_errors_do_not_act_on_terminals(client: timbrel.Client, server: HostileServer) -> None:
    violations = [error_details_pb2.BadRequest.FieldViolation(field=ESCAPE, description=ESCAPE * 1000)] * 100
    status = status_pb2.Status(code=3, message=ESCAPE)
    status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    refused = pb.GenerateBatchResponse(id=0, status=status)
    server.answers["GenerateBatch"] = lambda _: [refused.SerializeToString()]
    with pytest.raises(timbrel.InvalidRequestError) as error:
        list(client.generate_many([timbrel.NoteRequest(CENTRE)]))
    assert not UNPRINTABLE.search(str(error.value))
    assert len(str(error.value)) < 100_000


@pytest.mark.parametrize("size", [2**62, 2**40])
def test_a_file_that_is_said_to_be_huge_is_not_fetched(
    client: timbrel.Client, server: HostileServer, size: int
) -> None:
    graph = next(each for each in server.model.manifest.files if each.name == CODEC_DECODER)
    graph.size = size
    server.answers["GetFile"] = lambda _: (
        pb.GetFileResponse(data=bytes(1 << 20)).SerializeToString() for _ in range(40)
    )
    with pytest.raises(timbrel.BundleMismatchError, match=f"{size} bytes, up to"):
        client.prepare()
    assert _cached_bytes() < 2**20


def test_more_of_a_file_than_the_manifest_says_is_not_kept(
    client: timbrel.Client, server: HostileServer
) -> None:
    server.answers["GetFile"] = lambda _: (
        pb.GetFileResponse(data=bytes(1 << 20)).SerializeToString() for _ in range(40)
    )
    with pytest.raises(timbrel.BundleMismatchError, match="more of"):
        client.prepare()
    assert _cached_bytes() < 2**20


def _cached_bytes() -> int:
    return sum(path.stat().st_size for path in cache_folder().rglob("*") if path.is_file())


def _hop(server: HostileServer) -> None:
    server.model.manifest.codec.hop_length //= 2


def _graph(change: Callable[[onnx.ModelProto], object]) -> Callable[[HostileServer], None]:
    """Serves another codec, well described."""

    def serve(server: HostileServer) -> None:
        model = onnx.load(server.bundle.file(CODEC_DECODER), load_external_data=False)
        change(model)
        data = model.SerializeToString()
        manifest = server.model.manifest
        listed = next(each for each in manifest.files if each.name == CODEC_DECODER)
        listed.sha256, listed.size = hashlib.sha256(data).hexdigest(), len(data)
        manifest.bundle_hash = bundle_hash(manifest.files)
        answer = server.answers["GetFile"]

        def get_file(requests: Iterator[bytes]) -> Iterable[bytes]:
            request = pb.GetFileRequest.FromString(body := next(requests))
            if request.name != CODEC_DECODER:
                return answer(iter([body]))
            return [pb.GetFileResponse(data=data[request.offset :]).SerializeToString()]

        server.answers["GetFile"] = get_file

    return serve


def _rename_output(model: onnx.ModelProto, name: str, op_type: str, *inputs: str, **attributes: Any) -> None:
    """Has another node make an output."""
    for node in model.graph.node:
        node.output[:] = [f"{each}_before" if each == name else each for each in node.output]
        node.input[:] = [f"{each}_before" if each == name else each for each in node.input]
    model.graph.node.append(helper.make_node(op_type, [f"{name}_before", *inputs], [name], **attributes))


def _first_state(model: onnx.ModelProto) -> str:
    return next(each.name for each in model.graph.output if each.name != "audio")


def _fail_as_it_runs(model: onnx.ModelProto) -> None:
    """By a node whose name onnxruntime would log."""
    _rename_output(model, "audio", "Reshape", "other_shape")
    model.graph.node[-1].name = ESCAPE
    model.graph.node.insert(0, helper.make_node("Shape", ["codes"], ["other_shape"]))


def _secret(model: onnx.ModelProto) -> None:
    tensor = TensorProto(
        name="secret", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="secret.bin")
    model.graph.node.append(helper.make_node("Constant", [], ["unused"], value=tensor))


def _double_a_weight(model: onnx.ModelProto) -> None:
    weights = model.graph.initializer
    weights.append(next(each for each in weights if each.data_location == TensorProto.EXTERNAL))


BAD_CODECS: dict[str, tuple[Callable[[HostileServer], None], str]] = {
    "wrong hop_length": (_hop, "gives audio of shape"),
    "a weight twice": (_graph(_double_a_weight), "does not take its weights"),
    "reads a file": (_graph(_secret), "'secret' from a file"),
    "no tensor": (
        _graph(lambda model: _rename_output(model, "audio", "SequenceConstruct")),
        "cannot load|as seq",
    ),
    "fails": (
        _graph(_fail_as_it_runs),
        "onnxruntime cannot run it",
    ),
    "state of another shape": (
        _graph(lambda model: _rename_output(model, _first_state(model), "Concat", "audio_before", axis=0)),
        "onnxruntime cannot|the state|as tensor",
    ),
}


@pytest.mark.parametrize("case", BAD_CODECS)
def test_a_codec_that_is_none_is_a_mismatch(
    client: timbrel.Client, server: HostileServer, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, fault = BAD_CODECS[case]
    spoil(server)
    with pytest.raises(timbrel.BundleMismatchError, match=fault):
        _ = client.generate(CENTRE).audio
    with pytest.raises(timbrel.BundleMismatchError, match=fault):
        list(client.stream(CENTRE))
    with pytest.raises(timbrel.BundleMismatchError, match=fault) as error, client.play() as player:
        list(player.note_on(CENTRE))
    assert not UNPRINTABLE.search(str(error.value))
    assert "\x1b" not in capfd.readouterr().err


def _endless(reply: pb.GenerateResponse, wrap: Callable[[Any], Any] = lambda reply: reply) -> Any:
    """The beginning of a note, and a reply for ever."""
    beginning = pb.GenerateResponse(header=reply.header)
    reply.ClearField("header")
    reply.finish_reason = pb.FINISH_REASON_UNSPECIFIED
    first, again = (wrap(each).SerializeToString() for each in (beginning, reply))
    return itertools.chain([first], itertools.repeat(again))


@pytest.mark.parametrize("what", ["nothing", "codes"])
def test_a_note_without_end_is_cut_off(client: timbrel.Client, server: HostileServer, what: str) -> None:
    """Also where its player does not listen: what comes meanwhile is kept."""
    reply = server.whole_note()
    if what == "nothing":
        reply.ClearField("codes")
    server.answers["Generate"] = lambda _: _endless(pb.GenerateResponse.FromString(reply.SerializeToString()))
    with pytest.raises(timbrel.ServerError, match="sent more"):
        client.generate(CENTRE)
    with pytest.raises(timbrel.ServerError, match="sent more"):
        list(client.stream(CENTRE))

    def play(requests: Iterator[bytes]) -> Any:
        number = pb.PlayRequest.FromString(next(requests)).id
        return _endless(reply, lambda each: pb.PlayResponse(id=number, reply=each))

    server.answers["Play"] = play
    with pytest.raises(timbrel.ServerError, match="sent more"), client.play() as player:
        note = player.note_on(CENTRE)
        kept = note._note._replies
        wait_for(lambda: kept.qsize() > 100, "replies that nobody reads", seen=kept.qsize)
        limit = 2**16 // 128 + server.model.manifest.model.max_frames * 2
        for _ in range(20):
            client.model()
            assert kept.qsize() <= limit
        list(note)


def test_a_hold_of_no_length_is_refused(client: timbrel.Client, server: HostileServer) -> None:
    reply = server.whole_note()
    reply.held_seconds = float("nan")
    server.answers["Generate"] = lambda _: [reply.SerializeToString()]
    with pytest.raises(timbrel.ServerError, match="held for nan"):
        client.generate(CENTRE)


def test_one_server_does_not_spoil_what_another_serves(server: HostileServer, tiny_bundle: Path) -> None:
    """The hash of a bundle names its files; what a manifest says beside is each server's own."""
    _hop(server)
    with timbrel.Client(server.address) as client, pytest.raises(timbrel.BundleMismatchError):
        _ = client.generate(CENTRE).audio
    with serving(tiny_bundle) as honest, timbrel.Client(honest.address) as client:
        assert client.model().bundle_hash == server.model.manifest.bundle_hash
        assert len(client.generate(CENTRE).audio) > 0


def test_no_more_requests_are_read_ahead_than_a_client_can_keep(server: HostileServer) -> None:
    server.model.engine.max_in_flight = 2**32 - 1
    asked: list[bytes] = []
    n_read = 0

    def requests() -> Iterator[timbrel.NoteRequest]:
        nonlocal n_read
        while n_read < 50_000:
            n_read += 1
            yield timbrel.NoteRequest(CENTRE)

    def silent(bodies: Iterator[bytes]) -> Iterator[bytes]:
        asked.extend(bodies)
        yield from ()

    server.answers["GenerateBatch"] = silent
    with timbrel.Client(server.address, timeout=4.0) as client, pytest.raises(timbrel.DeadlineExceededError):
        list(client.generate_many(requests()))
    assert 1000 < n_read <= 4 * 4096


def test_a_server_that_has_no_slots_still_renders_a_library(
    run: Run, server: HostileServer, tmp_path: Path
) -> None:
    server.model.engine.n_slots = 0
    job = ["--timbre", "0,0", "--pitches", "60", "--velocities", "90", "--tries", "1", "--no-loops"]
    status, _, error = run("library", *job, "--out", str(tmp_path / "lib"), "--server", server.address)
    assert status == 0, error


@pytest.mark.parametrize("what", ["nothing", "other notes", "a beginning"])
def test_a_player_does_not_wait_for_ever(
    client: timbrel.Client, server: HostileServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Neither who reads a note nor who leaves the player."""
    ended = threading.Event()

    def play(requests: Iterator[bytes]) -> Iterator[bytes]:
        number = pb.PlayRequest.FromString(next(requests)).id
        if what == "other notes":
            yield pb.PlayResponse(id=number + 7, reply=server.whole_note()).SerializeToString()
        if what == "a beginning":
            yield pb.PlayResponse(id=number, reply=server.note()[0]).SerializeToString()
        ended.wait(60.0)

    server.answers["Play"] = play
    monkeypatch.setattr(Connection, "timeout", 0.3)  # of what is played; calls have the client's 20 s
    try:
        with pytest.raises(timbrel.DeadlineExceededError, match="nothing more"), client.play() as player:
            list(player.note_on(CENTRE))
        with client.play() as player:
            player.note_on(CENTRE)
        asyncio.run(_play_silently(server.address))
    finally:
        ended.set()


async def _play_silently(address: str) -> None:
    async with timbrel.AsyncClient(address, timeout=20.0) as client:
        with pytest.raises(timbrel.DeadlineExceededError, match="nothing more"):
            async with client.play() as player:
                async for _ in await player.note_on(CENTRE):
                    pass
