"""The Open Inference Protocol, as NVIDIA's unmodified tritonclient speaks it, and byte by byte."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from in_process_server import run, serving
from requirements_gate import give_up

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.inference import grpc_service_pb2_grpc as oip_grpc
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.open_inference import service, tensors

ROOT = Path(__file__).resolve().parents[2]
CLIENT = "tritonclient[grpc]==2.73.0"
CLIENT_VENV = ROOT / "build" / "tritonclient-2.73.0"
"""Made once. tritonclient wants another grpcio and protobuf than this environment has."""

PATIENCE_SECONDS = 300.0
LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)
NOTES = [(0.1, 0.2, 60, 100, 0.5, 1), (-0.3, 0.4, 48, 80, 0.2, 2), (0.0, 0.0, 72, 127, 2.4, 2**64 - 1)]
"""As tests/triton_caller.py asks for them."""


def client_python() -> Path:
    """The interpreter that has tritonclient; the test ends here where it cannot be installed."""
    python = CLIENT_VENV / "bin" / "python"
    done = CLIENT_VENV / "installed"
    if done.exists():
        return python
    shutil.rmtree(CLIENT_VENV, ignore_errors=True)
    venv.create(CLIENT_VENV)
    pip = [
        *(sys.executable, "-m", "pip", "--python", str(python)),
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        CLIENT,
    ]
    installing = subprocess.run(pip, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if installing.returncode:
        reason = installing.stderr.strip().splitlines()[-1:] or ["pip failed"]
        shutil.rmtree(CLIENT_VENV, ignore_errors=True)
        give_up(f"needs {CLIENT} in a virtual environment of its own, and pip cannot get it: {reason[0]}")
    done.touch()
    return python


@pytest.fixture(scope="module")
def heard(server_address: str, tiny_bundle: Path) -> dict[str, Any]:
    """What tritonclient heard."""
    model = Bundle.open(tiny_bundle).manifest.name
    command = [str(client_python()), str(ROOT / "tests" / "triton_caller.py"), server_address, model]
    called = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert called.returncode == 0, called.stderr
    result: dict[str, Any] = json.loads(called.stdout)
    return result


@pytest.fixture(scope="module")
def channel(server_address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(channel: grpc.Channel) -> list[np.ndarray[Any, np.dtype[np.uint16]]]:
    """The notes as Generate writes them, [frames, codebooks] each."""
    stub: Any = pb_grpc.SynthesizerStub(channel)
    codes = []
    for x, y, pitch, velocity, seconds, seed in NOTES:
        asked = pb.GenerateRequest(
            timbre=pb.Timbre(x=x, y=y),
            pitch=pitch,
            velocity=velocity,
            seconds=seconds,
            seed=seed,
            sampling=LIVELY,
        )
        data = b"".join(reply.codes.data for reply in stub.Generate(asked))
        codes.append(np.frombuffer(data, "<u2").reshape(-1, 3))
    return codes


@pytest.mark.slow
class TestTritonclient:
    def test_velocity_seconds_and_seed_may_be_left_out(self, heard: dict[str, Any]) -> None:
        assert heard["fail"]["defaults"] == ["none", ""]

    def test_the_server_describes_itself(self, heard: dict[str, Any], tiny_bundle: Path) -> None:
        told = heard["describe"]
        assert (told["live"], told["ready"], told["model_ready"], told["unknown_ready"]) == (
            True,
            True,
            True,
            False,
        )
        assert (told["server"], told["model"]) == ("timbrel", Bundle.open(tiny_bundle).manifest.name)
        assert told["inputs"] == [
            ["TIMBRE", "FP32", [-1, 2]],
            ["PITCH", "INT32", [-1, 1]],
            ["VELOCITY", "INT32", [-1, 1]],
            ["SECONDS", "FP32", [-1, 1]],
            ["SEED", "UINT64", [-1, 1]],
            ["CENTS", "FP32", [-1, 1]],
            ["TEMPERATURE", "FP32", [-1, 1]],
            ["TOP_K", "INT32", [-1, 1]],
            ["TOP_P", "FP32", [-1, 1]],
        ]
        assert told["outputs"] == [
            ["CODES", "UINT16", [-1, -1, 3]],
            ["LENGTHS", "INT32", [-1]],
            ["AUDIO", "FP32", [-1, -1]],
        ]
        assert told["optional"] == [name for name, _, _ in told["inputs"][2:]]
        assert told["types"] == ["TYPE_UINT16", "TYPE_INT32", "TYPE_FP32"]
        assert told["dims"] == [[2], [1], [-1, 3], [], [-1]] and told["most"] == 32
        assert told["index"] == [[told["model"], "1", "READY"]]

    def test_notes_are_those_that_generate_writes(self, heard: dict[str, Any], expected: Any) -> None:
        told = heard["infer"]
        assert told["id"] == "three"
        assert told["lengths"] == [len(codes) for codes in expected]
        written = np.array(told["codes"], np.uint16)
        assert written.shape == (3, max(told["lengths"]), 3)
        for row, codes in zip(written, expected, strict=True):
            np.testing.assert_array_equal(row[: len(codes)], codes)
            assert not row[len(codes) :].any()
        assert told["same_codes"] and not told["has_audio"]

    def test_audio_is_the_notes_decoded(
        self, heard: dict[str, Any], expected: Any, tiny_bundle: Path
    ) -> None:
        codec = CodecDecoder(Bundle.open(tiny_bundle))
        sound = np.array(heard["infer"]["audio"], np.float32)
        hop = codec.spec.hop_length
        assert sound.shape == (3, hop * (max(len(codes) for codes in expected) - 4))
        for row, codes, (*_, seed) in zip(sound, expected, NOTES, strict=True):
            n_heard = hop * (len(codes) - 4)
            np.testing.assert_allclose(row[:n_heard], codec.decode(codes, seed), atol=1e-4)
            assert not row[n_heard:].any()

    def test_a_stream_answers_chunk_by_chunk_and_survives_a_bad_request(
        self, heard: dict[str, Any], expected: Any, tiny_bundle: Path
    ) -> None:
        told = heard["stream"]
        np.testing.assert_array_equal(np.array(told["codes"], np.uint16), expected[0])
        decoded = CodecDecoder(Bundle.open(tiny_bundle)).decode(expected[1], NOTES[1][-1])
        np.testing.assert_allclose(np.array(told["audio"], np.float32), decoded, atol=1e-4)
        assert told["finals"] == ["first", "second", "three"]
        assert told["three"] == 3
        (error,) = told["errors"]
        assert error.startswith("PITCH[0]: 5 is out of range")

    @pytest.mark.parametrize(
        ("case", "code", "words"),
        [
            ("unknown model", "NOT_FOUND", "unknown"),
            ("unknown version", "NOT_FOUND", "'7'"),
            ("out of range", "INVALID_ARGUMENT", "TIMBRE[0]"),
            ("below zero", "INVALID_ARGUMENT", "PITCH[0]"),
            ("missing", "INVALID_ARGUMENT", "PITCH"),
            ("wrong type", "INVALID_ARGUMENT", "INT64"),
            ("unknown output", "INVALID_ARGUMENT", "SONG"),
            ("too many", "INVALID_ARGUMENT", "33 rows"),
        ],
    )
    def test_faults_have_their_code(self, heard: dict[str, Any], case: str, code: str, words: str) -> None:
        status, message = heard["fail"][case]
        assert status == f"StatusCode.{code}"
        assert words in message

    def test_every_field_has_the_number_and_type_of_the_public_protocol(self, heard: dict[str, Any]) -> None:
        theirs = heard["protocol"]
        ours = [*oip.DESCRIPTOR.message_types_by_name.values()]
        compared = 0
        while ours:
            message: Descriptor = ours.pop()
            ours += message.nested_types
            described = DescriptorProto()
            message.CopyToProto(described)
            for field in described.field:
                is_repeated = field.label == field.LABEL_REPEATED
                assert theirs[message.full_name][field.name] == [field.number, field.type, is_repeated]
                compared += 1
        assert compared > 50


class TestContents:
    """Requests that carry their elements in typed fields, as some clients do."""

    def asked(self) -> oip.ModelInferRequest:
        request = oip.ModelInferRequest(model_name="tiny")
        for name, datatype, shape, contents in (
            ("TIMBRE", "FP32", (1, 2), {"fp32_contents": [0.1, 0.2]}),
            ("PITCH", "INT32", (1, 1), {"int_contents": [60]}),
            ("VELOCITY", "INT32", (1, 1), {"int_contents": [100]}),
            ("SECONDS", "FP32", (1, 1), {"fp32_contents": [0.5]}),
            ("SEED", "UINT64", (1, 1), {"uint64_contents": [1]}),
            ("TEMPERATURE", "FP32", (1, 1), {"fp32_contents": [1.0]}),
            ("TOP_P", "FP32", (1, 1), {"fp32_contents": [1.0]}),
        ):
            tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
            tensor.contents.CopyFrom(oip.InferTensorContents(**contents))
        return request

    def test_cents_bend_the_audio(self, channel: grpc.Channel, expected: Any, tiny_bundle: Path) -> None:
        request = self.asked()
        tensor = request.inputs.add(name="CENTS", datatype="FP32", shape=(1, 1))
        tensor.contents.fp32_contents.append(-150.0)
        for name in ("CODES", "AUDIO"):
            request.outputs.add(name=name)
        reply = oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        audio = np.frombuffer(reply.raw_output_contents[1], "<f4")
        bent = CodecDecoder(Bundle.open(tiny_bundle)).decode(expected[0], 1, -150.0)
        np.testing.assert_allclose(audio, bent, atol=1e-4)
        tensor.contents.fp32_contents[0] = 2401.0
        with pytest.raises(grpc.RpcError, match=r"CENTS\[0\]: .*2401"):
            oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)

    def test_sound_is_as_long_as_the_protocol_says(self, channel: grpc.Channel, tiny_bundle: Path) -> None:
        """In one reply by the note's length; streamed, samples come alone."""
        codec = Bundle.open(tiny_bundle).manifest.codec
        stub, request = oip_grpc.GRPCInferenceServiceStub(channel), self.asked()
        request.outputs.add(name="AUDIO")
        whole = stub.ModelInfer(request)
        audio = np.frombuffer(whole.raw_output_contents[0], "<f4")
        [n_frames] = np.frombuffer(whole.raw_output_contents[1], "<i4")
        assert len(audio) == (n_frames - codec.lead_frames) * codec.hop_length
        replies = [reply.infer_response for reply in stub.ModelStreamInfer(iter([request]))]
        assert {output.name for reply in replies for output in reply.outputs} == {"AUDIO"}
        assert sum(reply.outputs[0].shape[1] for reply in replies) == len(audio)

    def test_typed_fields_are_read(self, channel: grpc.Channel, expected: Any) -> None:
        reply = oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(self.asked())
        assert [output.name for output in reply.outputs] == ["CODES", "LENGTHS"]
        codes = np.frombuffer(reply.raw_output_contents[0], "<u2").reshape(reply.outputs[0].shape)
        np.testing.assert_array_equal(codes[0], expected[0])

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda request: request.inputs[1].contents.int_contents.append(61),
            lambda request: request.raw_input_contents.append(b"\0\0"),
            lambda request: request.inputs[0].shape.append(2),
            lambda request: request.inputs[0].ClearField("shape"),
            lambda request: request.inputs[2].shape.__setitem__(0, 2**62),
            lambda request: request.inputs[0].shape.__setitem__(0, -1),
            lambda request: request.inputs.add(name="PITCH", datatype="INT32", shape=(1, 1)),
            lambda request: request.inputs.add(name="SONG"),
            lambda request: request.ClearField("inputs"),
            lambda request: request.raw_input_contents.extend([b""] * 6),
        ],
    )
    def test_tensors_that_make_no_sense_are_invalid(self, channel: grpc.Channel, spoil: Any) -> None:
        request = self.asked()
        spoil(request)
        with pytest.raises(grpc.RpcError) as caught:
            oip_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        status: Any = caught.value
        assert status.code() is grpc.StatusCode.INVALID_ARGUMENT, status.details()


@pytest.mark.parametrize(("most_bytes", "expected"), [(0, [True]), (1 << 20, [False])])
def test_other_calls_are_answered_while_a_large_reply_is_made(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, expected: list[bool]
) -> None:
    answered, off_loop = threading.Event(), []

    def slow(*given: Any) -> None:
        off_loop.append(threading.current_thread() is not threading.main_thread())
        assert not off_loop[0] or answered.wait(PATIENCE_SECONDS)
        write_notes(*given)

    async def test() -> None:
        async with serving(tiny_bundle) as (_, _stub, channel):
            stub: Any = oip_grpc.GRPCInferenceServiceStub(channel)
            call = asyncio.ensure_future(stub.ModelInfer(TestContents().asked()))
            while not off_loop:
                assert (await stub.ServerLive(oip.ServerLiveRequest())).live
            await stub.ServerLive(oip.ServerLiveRequest())
            answered.set()
            assert len((await call).outputs) == 2

    write_notes = tensors.write_notes
    monkeypatch.setattr(tensors, "write_notes", slow)
    monkeypatch.setattr(service, "LARGE_REPLY_BYTES", most_bytes)
    run(test)
    assert off_loop == expected


def test_the_client_runs_apart_from_this_interpreter() -> None:
    """Else one process would load two sets of stubs for one package."""
    assert not any(name.startswith("tritonclient") for name in sys.modules)
