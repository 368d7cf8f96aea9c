"""The client against a server that answers as the test says, over a real connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from waiting import wait_for_async

import timbrel
from timbrel import files
from timbrel.aio import connection
from timbrel.aio.transport import Transport

if TYPE_CHECKING:
    from conftest import ScriptedServer

CENTRE = (0.0, 0.0)


def test_a_note_carries_what_was_asked_and_what_came(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client:
        note = client.generate((0.25, -0.5), pitch=64, velocity=90, seconds=1.5, seed=3, temperature=0.5)
    assert (note.timbre, note.pitch, note.velocity, note.seconds) == ((0.25, -0.5), 64, 90, 1.5)
    assert (note.seed, note.truncated, note.sample_rate) == (3, False, 8000)
    assert note.codes.shape == (7, 3) and note.codes.dtype == np.uint16
    assert note.codes[0].tolist() == [0, 1, 2]
    (request,) = scripted.requests
    assert request.bundle_hash == scripted.manifest.bundle_hash
    assert request.sampling.temperature == 0.5


def test_without_a_seed_one_is_drawn_before_the_note_is_sent(scripted: ScriptedServer) -> None:
    def full_once(context: grpc.ServicerContext) -> None:
        if len(scripted.requests) == 1:
            overloaded(context)

    scripted.fault = full_once
    with timbrel.Client(scripted.address) as client:
        notes = [client.generate(CENTRE) for _ in range(2)]
    first, again, second = (request.seed for request in scripted.requests)
    assert first == again == notes[0].seed != second == notes[1].seed
    assert all(request.HasField("seed") for request in scripted.requests)


def test_an_instrument_may_be_named(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client:
        assert client.instruments() == ("Violin", "Flute")
        assert client.timbre_map()[0].family == "Strings"
        assert client.generate("violin").timbre == (0.5, -0.25)
        with pytest.raises(timbrel.InvalidRequestError, match="Violin"):
            client.generate("Violni")


def test_a_bad_request_is_refused_before_it_is_sent(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client, pytest.raises(timbrel.InvalidRequestError) as caught:
        client.generate((0.9, 0.9), pitch=12)
    assert {field.field for field in caught.value.fields} == {"timbre", "pitch"}
    assert scripted.requests == []


def test_beside_an_instrument_that_is_not_there_every_bad_field_is_named(scripted: ScriptedServer) -> None:
    bad = timbrel.NoteRequest("Violni", pitch=1, velocity=200)
    with timbrel.Client(scripted.address) as client:
        with pytest.raises(timbrel.InvalidRequestError, match="Violin") as one:
            client.generate("Violni", pitch=1, velocity=200)
        (of_many,) = client.generate_many([bad], on_error="return")
    assert isinstance(of_many, timbrel.InvalidRequestError) and str(of_many) == str(one.value)
    assert [each.field for each in one.value.fields] == ["timbre", "pitch", "velocity"]


def test_the_model_is_described_without_protobuf(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client:
        model = client.model()
    assert (model.name, model.bundle_hash) == ("scripted", scripted.manifest.bundle_hash)
    assert (model.frame_rate, model.max_seconds) == (80.0, 0.5)
    assert (model.pitch_range, model.seconds_range) == ((36, 96), (0.05, 4.0))
    assert (model.provider, model.n_slots) == ("CPUExecutionProvider", 4)


def test_a_manifest_whose_hash_is_made_up_is_refused(scripted: ScriptedServer, cache: Path) -> None:
    scripted.manifest.bundle_hash = "../../elsewhere"
    with timbrel.Client(scripted.address) as client, pytest.raises(timbrel.ServerError, match="bundle_hash"):
        client.prepare()
    assert not cache.exists()


def test_a_bundle_of_another_format_is_a_mismatch(scripted: ScriptedServer) -> None:
    scripted.manifest.format_version += 1
    with (
        timbrel.Client(scripted.address) as client,
        pytest.raises(timbrel.BundleMismatchError, match="format_version"),
    ):
        client.model()


def test_files_that_make_no_codec_are_a_mismatch(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client:
        note = client.generate(CENTRE)
    with pytest.raises(timbrel.BundleMismatchError, match=r"codec_decoder\.onnx"):
        note.audio  # noqa: B018


def test_the_codec_is_fetched_once_for_all_clients(scripted: ScriptedServer) -> None:
    for _ in range(2):
        with timbrel.Client(scripted.address) as client:
            client.generate(CENTRE)
            client.generate(CENTRE)
    assert len(scripted.file_requests) == 2


def test_a_broken_transfer_of_the_codec_is_continued(scripted: ScriptedServer) -> None:
    scripted.cut_file_after = 2000
    with timbrel.Client(scripted.address) as client:
        client.generate(CENTRE)
    again = 2000 if not files.ON_WINDOWS else 0  # without locks, parts are not continued
    assert [request.offset for request in scripted.file_requests] == [0, again, 0]


def test_the_token_travels_as_a_bearer(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with timbrel.Client(scripted.address, token="secret") as client:
        client.generate(CENTRE)
    monkeypatch.setenv("TIMBREL_TOKEN", "other")
    with timbrel.Client(scripted.address) as client:
        client.generate(CENTRE)
    sent = [value for key, value in scripted.metadata if key == "authorization"]
    assert sent == ["Bearer secret", "Bearer other"]


def test_the_environment_names_the_server(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMBREL_SERVER", scripted.address)
    with timbrel.Client() as client:
        assert client.model().name == "scripted"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, timbrel.InvalidRequestError),
        (grpc.StatusCode.NOT_FOUND, timbrel.NotFoundError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, timbrel.DeadlineExceededError),
        (grpc.StatusCode.UNAUTHENTICATED, timbrel.AuthenticationError),
        (grpc.StatusCode.UNAVAILABLE, timbrel.UnavailableError),
        (grpc.StatusCode.FAILED_PRECONDITION, timbrel.BundleMismatchError),
        (grpc.StatusCode.INTERNAL, timbrel.ServerError),
    ],
)
def test_a_fault_raises_its_error_and_nothing_of_grpc(
    scripted: ScriptedServer, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    scripted.fault = lambda context: context.abort(code, "no such luck")
    with timbrel.Client(scripted.address) as client, pytest.raises(kind, match="no such luck") as caught:
        client.generate(CENTRE)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert len(scripted.requests) == (4 if kind is timbrel.UnavailableError else 1)  # it may be back soon


def test_a_call_that_a_server_cancels_as_it_ends_is_made_again(scripted: ScriptedServer) -> None:
    def cut_once(context: grpc.ServicerContext) -> None:
        if len(scripted.requests) == 1:
            context.abort(grpc.StatusCode.CANCELLED, "the server is going")

    scripted.fault = cut_once
    with timbrel.Client(scripted.address) as client:
        assert len(client.generate(CENTRE).codes) == 7
        assert len(scripted.requests) == 2
        scripted.fault = lambda context: context.abort(grpc.StatusCode.CANCELLED, "the server is gone")
        with pytest.raises(timbrel.UnavailableError, match="it cut the call"):
            client.generate(CENTRE)


def overloaded(context: grpc.ServicerContext, seconds: int = 0) -> None:
    retry = any_pb2.Any()
    retry.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds)))
    status = status_pb2.Status(code=8, message="queue full", details=[retry])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full")


def test_an_overloaded_server_is_asked_again(scripted: ScriptedServer) -> None:
    def full_at_first(context: grpc.ServicerContext) -> None:
        if len(scripted.requests) <= 12:
            overloaded(context)

    scripted.fault = full_at_first
    with timbrel.Client(scripted.address) as client:
        assert len(client.generate(CENTRE).codes) == 7
    assert len(scripted.requests) == 13


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time by which a client allows time: it goes by where the client sleeps, and nowhere else."""
    found = SimpleNamespace(now=0.0)

    async def sleep(seconds: float) -> None:
        found.now += seconds

    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: found.now))
    monkeypatch.setattr(connection, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return found


def test_a_server_that_is_overloaded_for_longer_than_the_timeout_is_given_up(
    scripted: ScriptedServer, clock: SimpleNamespace
) -> None:
    scripted.fault = lambda context: overloaded(context, seconds=60)
    with (
        timbrel.Client(scripted.address, timeout=100.0) as client,
        pytest.raises(timbrel.OverloadedError) as caught,
    ):
        client.generate(CENTRE)
    assert caught.value.retry_after_seconds == clock.now == 60.0
    assert len(scripted.requests) == 2


def test_a_deadline_that_is_met_after_waiting_for_a_full_server_says_so(
    scripted: ScriptedServer, clock: SimpleNamespace
) -> None:
    """Else the time allowed would seem to have been what was left of it."""
    done = threading.Event()

    def full_once(context: grpc.ServicerContext) -> None:
        if len(scripted.requests) == 1:
            overloaded(context, seconds=99)
        done.wait(30)

    scripted.fault = full_once
    with timbrel.Client(scripted.address, timeout=100.0) as client:
        with pytest.raises(timbrel.DeadlineExceededError, match="until then the server was full: queue full"):
            client.generate(CENTRE)
        done.set()


def test_a_server_that_hangs_meets_the_deadline(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    with timbrel.Client(scripted.address) as client:
        client.generate(CENTRE)  # the first may take longer
        own = client._connection
        monkeypatch.setattr(own, "settings", replace(own.settings, timeout=0.3))
        scripted.fault = lambda _context: [None, done.wait(30)][0]
        with pytest.raises(timbrel.DeadlineExceededError):
            client.generate(CENTRE)
    done.set()


def test_where_nobody_listens_the_address_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with (
            timbrel.Client(address, timeout=600) as client,  # which is not waited for
            pytest.raises(timbrel.UnavailableError, match=address),
        ):
            client.model()


def test_a_task_that_is_cancelled_hears_so_in_the_words_of_who_cancelled_it() -> None:
    """By them anyio knows its scopes' cancellations: any other would end the whole program."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.setblocking(False)
            async with timbrel.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}") as client:
                asking = asyncio.create_task(client.model())
                accepted, _ = await asyncio.get_running_loop().sock_accept(silent)
                asking.cancel("by a scope")
                with accepted, pytest.raises(asyncio.CancelledError, match="by a scope"):
                    await asking

    asyncio.run(main())


def test_threads_share_a_client(scripted: ScriptedServer) -> None:
    with timbrel.Client(scripted.address) as client, ThreadPoolExecutor(8) as pool:
        notes = list(pool.map(lambda seed: client.generate("Flute", seed=seed), range(16)))
    assert [note.seed for note in notes] == list(range(16))
    assert len(scripted.file_requests) == 2


def test_a_closed_client_says_so(scripted: ScriptedServer) -> None:
    client = timbrel.Client(scripted.address)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.model()


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(timbrel.InvalidRequestError, match="timeout"):
        timbrel.Client("localhost:1", timeout=timeout)


def test_no_public_signature_speaks_of_grpc_or_protobuf() -> None:
    for kind in (timbrel.Client, timbrel.Note, timbrel.TimbrelError):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                annotations = map(str, getattr(member, "__annotations__", {}).values())
                assert not any("grpc" in each or "pb" in each for each in annotations), name


def test_those_who_wait_for_one_answer_wait_for_no_longer_than_one(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    """What each allows the server, after those before gave it up, is the rest of its own time."""
    limit, allowed = 60.0, list[float]()

    async def stand_still(_: Transport, timeout: float) -> None:
        allowed.append(timeout)
        if len(allowed) == 1:
            await wait_for_async(lambda: len(asked[0]._waiters or ()) == 3, "the others to wait for it")
        clock.now += timeout
        raise timbrel.DeadlineExceededError("GetModel was not answered")

    asked: list[asyncio.Lock] = []

    async def ask_at_once() -> list[object]:
        async with timbrel.AsyncClient("localhost:1", timeout=limit) as client:
            asked.append(client._connection._making["model"])
            notes = [client.generate(CENTRE), client.generate(CENTRE), client.model(), client.prepare()]
            return await asyncio.gather(*notes, return_exceptions=True)

    monkeypatch.setattr(Transport, "get_model", stand_still)
    outcomes = asyncio.run(ask_at_once())
    assert [type(each) for each in outcomes] == 4 * [timbrel.DeadlineExceededError]
    assert sum(allowed) < 2 * limit
