"""Several bundles by name, and SIGHUP: bundles are loaded, warmed and switched while notes go on."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from bundle_variants import changed_manifest
from in_process_server import reload, run, serving
from server_process import ServerProcess
from waiting import wait_for, wait_for_async

from timbrel_bundle.manifest import bundle_hash, load_manifest, save_manifest
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.inference import grpc_service_pb2_grpc as oip_grpc
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.app import App
from timbrel_server.decoder.runner import Runner
from timbrel_server.engine.slots import StepInput
from timbrel_server.served_bundles.reload import LOOK_SECONDS

PATIENCE_SECONDS = 60.0
N_RELOADS = 4

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def renewed(tiny_bundle: Path, tmp_path: Path) -> Path:
    """The tiny bundle with another hash: what differs is nothing that it sounds by."""
    copy = shutil.copytree(tiny_bundle, tmp_path / "renewed")
    changed = copy / "timbre_map.json"
    changed.write_text(changed.read_text() + "\n")
    manifest = load_manifest(copy / "manifest.json")
    for file in manifest.files:
        if file.name == changed.name:
            file.size = changed.stat().st_size
            file.sha256 = hashlib.sha256(changed.read_bytes()).hexdigest()
    manifest.bundle_hash = bundle_hash(manifest.files)
    save_manifest(manifest, copy / "manifest.json")
    return copy


def note(bundle: str = "", seconds: float = 2.4) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=seconds, seed=1, bundle=bundle)


def served_hash(stub: Any, name: str = "") -> str:
    reply = stub.GetModel(pb.GetModelRequest(bundle=name), timeout=PATIENCE_SECONDS)
    return str(reply.manifest.bundle_hash)


def codes(replies: Any) -> bytes:
    return b"".join(reply.codes.data for reply in replies)


def turn(link: Path, folder: Path) -> None:
    """As an operator does: the new link takes the old one's place in one go."""
    new = link.with_suffix(".new")
    new.symlink_to(folder)
    os.replace(new, link)


async def hold_over_reload(app: App, stub: Any, link: Path, folder: Path) -> Any:
    """Holds a key while this folder's bundle takes the place of its own; returns the Play call.

    Real time is to stand still: by it the note would be over before another bundle is loaded.
    """
    held = stub.Play()
    await held.write(pb.PlayRequest(id=1, note_on=pb.NoteOn(note=note())))
    assert (await held.read()).HasField("reply")
    turn(link, folder)
    await reload(app)
    return held


async def error_of(held: Any) -> str:
    """Reads to the end of the note."""
    response = await held.read()
    while response.HasField("reply"):
        response = await held.read()
    return str(response.error.message)


def wait_for_log(server: ServerProcess, text: str) -> None:
    wait_for(lambda: text in server.log(), f"{text!r} in the log", seen=server.log)


def test_requests_name_their_bundle(start_server: StartServer, tiny_bundle: Path, renewed: Path) -> None:
    server = start_server("--bundle", f"b={renewed}", "--bundle", f"c={tiny_bundle}")
    assert "bundle=tiny,b,c" in server.ready_line
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        assert (
            served_hash(stub) == served_hash(stub, "tiny") == served_hash(stub, "c") != served_hash(stub, "b")
        )
        written = {
            codes(stub.Generate(note(name), timeout=PATIENCE_SECONDS)) for name in ("", "tiny", "b", "c")
        }
        assert len(written) == 1
        with pytest.raises(grpc.RpcError) as caught:
            served_hash(stub, "d")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        wrong = note("b")
        wrong.bundle_hash = served_hash(stub)
        with pytest.raises(grpc.RpcError) as caught:
            codes(stub.Generate(wrong, timeout=PATIENCE_SECONDS))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_bundle_is_switched_under_load(
    start_server: StartServer, tiny_bundle: Path, renewed: Path, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)
    server = start_server("--slots", "2", bundle=link)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        alone = codes(stub.Generate(note(), timeout=PATIENCE_SECONDS))
        ended: list[bytes | str] = []
        over = threading.Event()

        def ask_on_and_on() -> None:
            while not over.is_set():
                try:
                    ended.append(codes(stub.Generate(note(), timeout=PATIENCE_SECONDS)))
                except grpc.RpcError as error:
                    ended.append(str(error))

        askers = [threading.Thread(target=ask_on_and_on) for _ in range(6)]
        for asker in askers:
            asker.start()
        turn(link, renewed)
        server.signal(signal.SIGHUP)
        renewed_hash = load_manifest(renewed / "manifest.json").bundle_hash
        wait_for(lambda: served_hash(stub) == renewed_hash, "the renewed bundle", seen=server.log)
        wait_for_log(server, "is freed")
        over.set()
        for asker in askers:
            asker.join()
        assert len(ended) >= 6
        assert set(ended) == {alone}  # every one of them, before, during and after
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_a_manifest_that_says_something_else_is_another_bundle(
    start_server: StartServer, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = changed_manifest(tiny_bundle, tmp_path / "bundle", lambda manifest: None)
    server = start_server(bundle=bundle)
    manifest = load_manifest(bundle / "manifest.json")
    manifest.ranges.seconds_max = 1.5
    save_manifest(manifest, bundle / "manifest.json")
    server.signal(signal.SIGHUP)
    wait_for_log(server, "is freed")
    with grpc.insecure_channel(server.address) as channel:
        reply = pb_grpc.SynthesizerStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
    assert reply.manifest.ranges.seconds_max == 1.5
    server.signal(signal.SIGHUP)
    wait_for_log(server, "unchanged")


def test_the_same_bundle_in_another_folder_is_served_from_there(
    start_server: StartServer, tiny_bundle: Path, tmp_path: Path
) -> None:
    """The first folder may go once the link has been turned: what is read late is not read of it."""
    first, second = (shutil.copytree(tiny_bundle, tmp_path / name) for name in ("first", "second"))
    link = tmp_path / "link"
    turn(link, first)
    server = start_server(bundle=link)
    turn(link, second)
    server.signal(signal.SIGHUP)
    wait_for_log(server, "is freed")
    shutil.rmtree(first)
    with grpc.insecure_channel(server.address) as channel:
        request = note(seconds=0.2)
        request.audio = pb.AUDIO_FORMAT_WAV
        replies = pb_grpc.SynthesizerStub(channel).Generate(request, timeout=PATIENCE_SECONDS)
        assert b"".join(reply.audio for reply in replies).startswith(b"RIFF")


def test_tokens_are_not_said_to_be_read_anew_where_no_file_holds_them(
    tiny_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with serving(tiny_bundle, token="of-the-environment") as (app, _, _channel):
            await reload(app)

    run(test)
    assert "bundle tiny: unchanged" in caplog.text and "tokens" not in caplog.text


@pytest.mark.parametrize("damage", ["altered", "missing", "no manifest", "no folder"])
def test_a_broken_bundle_leaves_the_old_one(
    start_server: StartServer, tiny_bundle: Path, renewed: Path, tmp_path: Path, damage: str
) -> None:
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)
    server = start_server(bundle=link)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        before = served_hash(stub)
        weights = renewed / "model.safetensors"
        match damage:
            case "altered":
                content = bytearray(weights.read_bytes())
                content[len(content) // 2] ^= 1
                weights.write_bytes(content)
            case "missing":
                weights.unlink()
            case "no manifest":
                (renewed / "manifest.json").write_text("{")
            case "no folder":
                shutil.rmtree(renewed)
        turn(link, renewed)
        server.signal(signal.SIGHUP)
        wait_for_log(server, "what is in use stays")
        assert served_hash(stub) == before
        assert codes(stub.Generate(note(seconds=0.2), timeout=PATIENCE_SECONDS))
        turn(link, tiny_bundle)
        server.signal(signal.SIGHUP)
        wait_for_log(server, "unchanged")


def test_what_was_replaced_is_freed(
    tiny_bundle: Path, renewed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)

    async def test() -> None:
        async with serving(link) as (app, _, _channel):
            n_before = n_runners()
            for index in range(N_RELOADS):
                turn(link, (renewed, tiny_bundle)[index % 2])
                await reload(app)
                await wait_for_async(
                    lambda n=index + 1: caplog.text.count("is freed") == n,  # type: ignore[misc]
                    "what was replaced to be freed",
                    seen=lambda: caplog.text,
                )
            # One that something still looked at is freed with the next.
            assert n_runners() <= n_before + 1

    run(test)


def test_an_inference_that_waits_for_room_is_answered_by_the_bundle_it_asked(
    tiny_bundle: Path, renewed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)
    asked = oip.ModelInferRequest()
    for name, datatype, width, contents in (
        ("TIMBRE", "FP32", 2, {"fp32_contents": [0.1, 0.2]}),
        ("PITCH", "INT32", 1, {"int_contents": [60]}),
    ):
        tensor = asked.inputs.add(name=name, datatype=datatype, shape=(1, width))
        tensor.contents.CopyFrom(oip.InferTensorContents(**contents))

    async def test() -> None:
        async with serving(link, max_notes=1, caller_share=1.0) as (app, _, channel):
            room: Any = next(limit for limit in app._server.limits if limit.name == "max_notes")
            with room.take("somebody"):
                stub: Any = oip_grpc.GRPCInferenceServiceStub(channel)
                call = stub.ModelInfer(asked, timeout=PATIENCE_SECONDS)
                await wait_for_async(lambda: room.n_waiting, "the inference to wait")
                turn(link, renewed)
                await reload(app)
                await asyncio.sleep(3 * LOOK_SECONDS)
                assert "is freed" not in caplog.text
            assert len((await call).outputs) == 2
            await wait_for_async(lambda: "is freed" in caplog.text, "what was replaced to be freed")

    run(test)


def test_a_bundle_that_is_never_warm_keeps_no_token_from_being_taken_back(
    tiny_bundle: Path, renewed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, tokens = tmp_path / "current", tmp_path / "tokens"
    link.symlink_to(tiny_bundle)
    tokens.write_text("old:old-token")
    tokens.chmod(0o600)
    is_stuck, goes_on = threading.Event(), threading.Event()
    warm_up = Runner.warm_up

    def warm_up_when_told(runner: Runner) -> None:
        is_stuck.set()
        assert goes_on.wait(PATIENCE_SECONDS)
        warm_up(runner)

    async def test() -> None:
        async with serving(link, token_file=tokens) as (app, stub, _):

            async def seen_by(token: str) -> str:
                who = (("authorization", f"Bearer {token}"),)
                reply = await stub.GetModel(pb.GetModelRequest(), metadata=who, timeout=PATIENCE_SECONDS)
                return str(reply.manifest.bundle_hash)

            monkeypatch.setattr(Runner, "warm_up", warm_up_when_told)
            before = await seen_by("old-token")
            turn(link, renewed)
            await app._reloader.begin()
            await wait_for_async(is_stuck.is_set, "the new engine to be stuck")
            tokens.write_text("new:new-token")
            await app._reloader.begin()
            assert await seen_by("new-token") == before
            with pytest.raises(grpc.aio.AioRpcError, match="asks for a token"):
                await seen_by("old-token")
            goes_on.set()
            served = app._bundles.find
            await wait_for_async(lambda: served().manifest.bundle_hash != before, "the new engine")
            assert await seen_by("new-token") != before

    run(test)


def test_an_engine_that_was_replaced_and_dies_takes_only_its_own_notes_along(
    tiny_bundle: Path, renewed: Path, tmp_path: Path, ticks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)
    lost: list[Runner] = []
    step = Runner.step

    def step_unless_lost(runner: Runner, given: StepInput) -> Any:
        if runner in lost:
            raise RuntimeError("the device is lost")
        return step(runner, given)

    monkeypatch.setattr(Runner, "step", step_unless_lost)

    async def test() -> None:
        async with serving(link) as (app, stub, _):
            old: Any = app.engine
            held = await hold_over_reload(app, stub, link, renewed)
            lost.append(old.engines[0]._runner)
            ticks[0] = 1000  # the note goes on
            assert await error_of(held) == "the engine has died"
            await wait_for_async(lambda: not old.n_occupied, "the old engine to be done")
            assert [reply async for reply in stub.Generate(note())][-1].finish_reason
            assert not app.has_failed and app._server.health.is_ready

    run(test)


def test_the_notes_of_an_engine_that_was_replaced_and_stalls_fail(
    tiny_bundle: Path, renewed: Path, tmp_path: Path, ticks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "current"
    link.symlink_to(tiny_bundle)
    stuck: list[Runner] = []
    is_stuck, goes_on = threading.Event(), threading.Event()
    step = Runner.step

    def step_unless_stuck(runner: Runner, given: StepInput) -> Any:
        if runner in stuck:
            is_stuck.set()
            assert goes_on.wait(PATIENCE_SECONDS)
        return step(runner, given)

    monkeypatch.setattr(Runner, "step", step_unless_stuck)

    async def test() -> None:
        async with serving(link) as (app, stub, _):
            old: Any = app.engine
            held = await hold_over_reload(app, stub, link, renewed)
            stuck.append(old.engines[0]._runner)
            ticks[0] = 1000  # the note goes on
            await wait_for_async(is_stuck.is_set, "the old engine to be stuck")
            for _ in range(app._watchdog._patience + 1):  # a second each, otherwise
                app._watchdog._look()
            assert await error_of(held) == "the engine has stalled"
            assert [reply async for reply in stub.Generate(note())][-1].finish_reason
            assert not app.has_failed and app._server.health.is_ready
            goes_on.set()
            await wait_for_async(lambda: not app._bundles.replaced, "the old engine to be forgotten")

    run(test)


def n_runners() -> int:
    """How many are in memory, each with the sessions and caches of a bundle."""
    gc.collect()
    return sum(type(each) is Runner for each in gc.get_objects())
