"""What a call may fail with, as its caller sees it: the proper code, the details that go with it, no more."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from hostile_messages import METHODS
from in_process_server import run, serving, wait_until_idle
from waiting import wait_for_async

from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.decoder.runner import Runner
from timbrel_server.served_bundles import codec_decoding
from timbrel_server.served_bundles.served_bundle import OpenFiles

SECRET = "/opt/models/decoder.layers.3.weight is not finite"
METHOD = {method.path.rpartition("/")[2]: method for method in METHODS}


def note(seed: int = 1, **fields: Any) -> pb.GenerateRequest:
    chosen = {"timbre": pb.Timbre(x=0.1, y=0.2), "pitch": 60, "seconds": 0.2, "seed": seed}
    return pb.GenerateRequest(**{**chosen, **fields})


async def status_of(call: Any) -> status_pb2.Status:
    """The rich status with which a call ends."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError:
        pass
    status: Any = await rpc_status.aio.from_call(call)  # type: ignore[attr-defined]
    assert status is not None, await call.code()
    assert isinstance(status, status_pb2.Status)
    return status


def served(bundle: Path, test: Callable[[Any, Any, Any], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with serving(bundle, **options) as (app, stub, channel):
            await test(app, stub, channel)
            await wait_until_idle(app)

    run(whole)


def error_id(status: status_pb2.Status) -> str:
    """Of an INTERNAL that tells its id and nothing else."""
    assert status.code == code_pb2.INTERNAL
    detail = error_details_pb2.ErrorInfo()
    assert len(status.details) == 1 and status.details[0].Unpack(detail)
    assert (detail.reason, detail.domain) == ("INTERNAL", "timbrel")
    assert status.message == f"internal error {detail.metadata['error_id']}"
    assert b"weight" not in status.SerializeToString()
    return detail.metadata["error_id"]


class TestInternal:
    """Faults deep in the server: an id on the wire, and everything else in the log alone."""

    def check(
        self,
        bundle: Path,
        caplog: pytest.LogCaptureFixture,
        provoke: Callable[[Any, Any], Awaitable[status_pb2.Status]],
    ) -> None:
        ids = []

        async def test(app: Any, stub: Any, channel: Any) -> None:
            ids.append(error_id(await provoke(stub, channel)))

        with caplog.at_level(logging.ERROR):
            served(bundle, test)
        assert ids[0] in caplog.text
        assert "Traceback" in caplog.text

    @pytest.fixture
    def deaf_codec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*arguments: Any) -> Any:
            raise RuntimeError(SECRET)

        monkeypatch.setattr(codec_decoding, "decode_together", broken)
        assert CodecDecoder is codec_decoding.CodecDecoder

    @pytest.mark.usefixtures("deaf_codec")
    def test_of_generate(self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
        asked = note(audio=pb.AUDIO_FORMAT_WAV)
        self.check(tiny_bundle, caplog, lambda stub, _: status_of(stub.Generate(asked)))
        assert SECRET in caplog.text

    @pytest.mark.usefixtures("deaf_codec")
    def test_of_a_batchs_item(self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def provoke(stub: Any, _: Any) -> status_pb2.Status:
            items = [pb.GenerateBatchRequest(id=1, note=note(audio=pb.AUDIO_FORMAT_WAV))]
            (response,) = [response async for response in stub.GenerateBatch(iter(items))]
            status: status_pb2.Status = response.status
            return status

        self.check(tiny_bundle, caplog, provoke)

    @pytest.mark.usefixtures("deaf_codec")
    def test_of_a_played_note(self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def provoke(stub: Any, _: Any) -> status_pb2.Status:
            note_on = pb.NoteOn(note=note(audio=pb.AUDIO_FORMAT_WAV), lead_seconds=60.0)
            (response,) = [r async for r in stub.Play(iter([pb.PlayRequest(id=1, note_on=note_on)]))]
            status: status_pb2.Status = response.error
            return status

        self.check(tiny_bundle, caplog, provoke)

    @pytest.mark.usefixtures("deaf_codec")
    def test_of_an_inference_stream(self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def test(app: Any, stub: Any, channel: Any) -> None:
            asked = oip.ModelInferRequest()
            asked.MergeFrom(METHOD["ModelStreamInfer"].valid)
            asked.outputs.add(name="AUDIO")
            call = channel.stream_stream(METHOD["ModelStreamInfer"].path)
            bodies = [body async for body in call(iter([asked.SerializeToString()]))]
            response = oip.ModelStreamInferResponse.FromString(bodies[-1])
            assert response.error_message.startswith("internal error ")
            assert response.error_message.split()[-1] in caplog.text
            assert response.infer_response.id == asked.id

        with caplog.at_level(logging.ERROR):
            served(tiny_bundle, test)

    def test_of_locate(
        self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*arguments: Any) -> Any:
            raise RuntimeError(SECRET)

        monkeypatch.setattr(TimbreEncoder, "hear", broken)
        self.check(tiny_bundle, caplog, lambda stub, _: status_of(stub.Locate(METHOD["Locate"].valid)))

    def test_of_a_file_that_has_vanished(
        self, tiny_bundle: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(self: OpenFiles, name: str, offset: int, n_bytes: int) -> bytes:
            raise FileNotFoundError(2, SECRET, name)

        monkeypatch.setattr(OpenFiles, "read", broken)
        asked = pb.GetFileRequest(name="timbre_map.json")
        self.check(tiny_bundle, caplog, lambda stub, _: status_of(stub.GetFile(asked)))


class TestSaidBack:
    """What a caller said comes back shortened: a status travels as headers, which peers bound."""

    def test_long_names(self, tiny_bundle: Path) -> None:
        long = "é" * 30_000

        async def test(app: Any, stub: Any, channel: Any) -> None:
            infer = oip.ModelInferRequest(model_name=long)
            for call, code in (
                (stub.Generate(note(bundle=long)), code_pb2.NOT_FOUND),
                (stub.GetModel(pb.GetModelRequest(bundle=long)), code_pb2.NOT_FOUND),
                (stub.GetFile(pb.GetFileRequest(name=long)), code_pb2.NOT_FOUND),
                (stub.Generate(note(bundle_hash=long)), code_pb2.FAILED_PRECONDITION),
                (
                    channel.unary_unary(METHOD["ModelInfer"].path)(infer.SerializeToString()),
                    code_pb2.NOT_FOUND,
                ),
            ):
                status = await status_of(call)
                assert status.code == code
                assert status.ByteSize() < 4000

        served(tiny_bundle, test)

    def test_many_faults(self, tiny_bundle: Path) -> None:
        async def test(app: Any, stub: Any, channel: Any) -> None:
            infer = oip.ModelInferRequest(model_name="tiny")
            for number in range(5000):
                infer.inputs.add(name=f"TENSOR_{number}")
            call = channel.unary_unary(METHOD["ModelInfer"].path)(infer.SerializeToString())
            status = await status_of(call)
            assert status.code == code_pb2.INVALID_ARGUMENT
            assert status.ByteSize() < 7000

        served(tiny_bundle, test)


class TestOverload:
    def test_a_deadline_that_cannot_be_met_is_refused_at_once(
        self, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        n_steps, all_are_asked = itertools.count(), threading.Event()
        step = Runner.step

        def stepping(runner: Runner, rows: Any) -> list[list[int]]:
            """How long a step takes is known after some; then the queue is to stay as it is."""
            assert next(n_steps) < 20 or all_are_asked.wait(60.0)
            return step(runner, rows)

        async def test(app: Any, stub: Any, channel: Any) -> None:
            monkeypatch.setattr(Runner, "step", stepping)
            ahead = [stub.Generate(note(seed, seconds=2.4)) for seed in range(80)]
            [engine] = app.engine.engines
            await wait_for_async(lambda: engine.step_seconds and app.engine.n_waiting == 79, "a queue")
            with monkeypatch.context() as patched:
                # So the queue is too long by far for a deadline that no busy machine lets pass meanwhile.
                patched.setattr(type(engine), "step_seconds", 1.0)
                status = await status_of(stub.Generate(note(seconds=2.4), timeout=60.0))
            assert status.code == code_pb2.RESOURCE_EXHAUSTED
            detail = error_details_pb2.RetryInfo()
            assert status.details[0].Unpack(detail)
            assert detail.retry_delay.ToNanoseconds() > 0
            patient = stub.Generate(note(seconds=0.1), timeout=3600.0)
            await wait_for_async(lambda: app.engine.n_waiting == 80, "the patient one to be taken on")
            for call in ahead:
                call.cancel()
            all_are_asked.set()
            assert [reply async for reply in patient][-1].finish_reason

        served(tiny_bundle, test, n_slots=1)

    def test_one_caller_cannot_starve_another(
        self, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokens = tmp_path / "tokens"
        names = ("greedy", "modest")
        token = {name: f"{name}-0123456789abcdef" for name in names}
        tokens.write_text("".join(f"{name}:{token[name]}\n" for name in names))
        tokens.chmod(0o600)
        all_are_asked = threading.Event()
        step = Runner.step

        def stepping(runner: Runner, rows: Any) -> list[list[int]]:
            assert all_are_asked.wait(60.0)
            return step(runner, rows)

        async def test(app: Any, stub: Any, channel: Any) -> None:
            monkeypatch.setattr(Runner, "step", stepping)
            order: list[str] = []

            def n_in_hand() -> int:
                return int(app.engine.n_occupied + app.engine.n_waiting)

            async def ask(name: str, seed: int) -> None:
                metadata = (("authorization", f"Bearer {token[name]}"),)
                async for _ in stub.Generate(note(seed, seconds=1.0), metadata=metadata):
                    pass
                order.append(name)

            async with grpc.aio.insecure_channel(app.address) as other:
                assert isinstance(pb_grpc.SynthesizerStub(other), pb_grpc.SynthesizerStub)
                greedy = [asyncio.create_task(ask("greedy", seed)) for seed in range(70)]
                await wait_for_async(lambda: n_in_hand() == 70, "a queue")
                modest = [asyncio.create_task(ask("modest", seed)) for seed in range(5)]
                await wait_for_async(lambda: n_in_hand() == 75, "the modest one's to be in it")
                all_are_asked.set()
                await asyncio.gather(*greedy, *modest)
            last = len(order) - 1 - order[::-1].index("modest")
            assert order[:last].count("greedy") < 25, "the modest caller waited for the greedy one's queue"

        served(tiny_bundle, test, n_slots=2, token_file=tokens)
