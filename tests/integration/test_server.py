"""A real server's answers, over a real port."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

from timbrel_bundle.bundle import Bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

SERVICE = "timbrel.v1.Synthesizer"
PATIENCE_SECONDS = 60.0
LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)


@pytest.fixture(scope="module")
def channel(server_address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> Any:
    return pb_grpc.SynthesizerStub(channel)


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


def request(**changes: Any) -> pb.GenerateRequest:
    fields = {"timbre": pb.Timbre(x=0.1, y=0.2), "pitch": 60, "seconds": 0.5, "seed": 1, **changes}
    return pb.GenerateRequest(**fields)


def codes(replies: list[pb.GenerateResponse]) -> npt.NDArray[np.uint16]:
    """Codes [n_frames, n_codebooks] of a whole note."""
    parts = [
        np.frombuffer(reply.codes.data, "<u2").reshape(reply.codes.n_frames, reply.codes.n_codebooks)
        for reply in replies
        if reply.HasField("codes")
    ]
    return np.concatenate(parts)


def generate(stub: Any, **changes: Any) -> npt.NDArray[np.uint16]:
    return codes(list(stub.Generate(request(**changes), timeout=PATIENCE_SECONDS)))


def failure(call: Any) -> Any:
    """The error with which a call, or reading its replies, ends."""
    with pytest.raises(grpc.RpcError) as caught:
        result = call()
        list(result)
    return caught.value


def faulty_fields(error: Any) -> list[str]:
    status = rpc_status.from_call(error)
    detail = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(detail)
    return [violation.field for violation in detail.field_violations]


class TestGenerate:
    def test_header_first_finish_last(self, stub: Any, bundle: Bundle) -> None:
        replies = list(stub.Generate(request(), timeout=PATIENCE_SECONDS))
        assert len(replies) > 1
        assert [reply.HasField("header") for reply in replies] == [True] + [False] * (len(replies) - 1)
        assert [bool(reply.finish_reason) for reply in replies] == [False] * (len(replies) - 1) + [True]
        header = replies[0].header
        assert (header.seed, header.codec_id) == (1, bundle.manifest.codec.id)
        assert header.bundle_hash == bundle.manifest.bundle_hash
        assert replies[-1].finish_reason == pb.FINISH_REASON_EOS

    def test_codes_are_the_codecs(self, stub: Any, bundle: Bundle) -> None:
        written = generate(stub)
        assert written.shape[1] == bundle.manifest.codec.n_codebooks
        assert len(written) > 20
        assert written.max() < bundle.manifest.codec.codebook_size

    def test_the_first_reply_is_the_first_frame_with_sound_and_those_before_it(
        self, stub: Any, bundle: Bundle
    ) -> None:
        first = next(iter(stub.Generate(request(), timeout=PATIENCE_SECONDS)))
        assert first.codes.n_frames == bundle.manifest.codec.lead_frames + 1 == 5

    def test_one_seed_one_note(self, stub: Any) -> None:
        first = generate(stub, sampling=LIVELY)
        np.testing.assert_array_equal(first, generate(stub, sampling=LIVELY))
        assert not np.array_equal(first, generate(stub, sampling=LIVELY, seed=2))

    def test_a_drawn_seed_is_told_and_repeats_the_note(self, stub: Any) -> None:
        open_request = request(sampling=LIVELY)
        open_request.ClearField("seed")
        replies = list(stub.Generate(open_request, timeout=PATIENCE_SECONDS))
        again = generate(stub, sampling=LIVELY, seed=replies[0].header.seed)
        np.testing.assert_array_equal(codes(replies), again)

    def test_a_note_lengthens_with_its_hold(self, stub: Any) -> None:
        lengths = [len(generate(stub, seconds=seconds)) for seconds in (0.2, 0.6, 1.2)]
        assert lengths == sorted(lengths)
        assert lengths[2] > lengths[0] + 30

    def test_a_note_is_cut_at_the_cap(self, stub: Any, bundle: Bundle) -> None:
        seconds = bundle.manifest.ranges.seconds_max
        replies = list(stub.Generate(request(seconds=seconds), timeout=PATIENCE_SECONDS))
        assert len(codes(replies)) == bundle.manifest.model.max_frames
        assert replies[-1].finish_reason == pb.FINISH_REASON_CAP

    def test_sixteen_at_once_get_the_codes_they_get_alone(self, stub: Any) -> None:
        asked = [
            {"pitch": 40 + 3 * i, "seconds": 0.1 + 0.12 * i, "seed": i, "sampling": LIVELY} for i in range(16)
        ]
        alone = [generate(stub, **each) for each in asked]
        with ThreadPoolExecutor(16) as pool:
            together = list(pool.map(lambda each: generate(stub, **each), asked))
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)


class TestFaults:
    @pytest.mark.parametrize(
        ("changes", "fields"),
        [
            ({"timbre": pb.Timbre(x=0.8, y=0.8)}, ["timbre"]),
            ({"timbre": None}, ["timbre"]),
            ({"timbre": pb.Timbre(x=float("nan"))}, ["timbre"]),
            ({"pitch": 200}, ["pitch"]),
            ({"seconds": -1.0, "velocity": 0}, ["velocity", "seconds"]),
            ({"seconds": float("inf")}, ["seconds"]),
            ({"sampling": pb.Sampling(top_p=float("nan"))}, ["sampling.top_p"]),
        ],
    )
    def test_fields_out_of_range_are_named(
        self, stub: Any, changes: dict[str, Any], fields: list[str]
    ) -> None:
        error = failure(lambda: stub.Generate(request(**changes), timeout=PATIENCE_SECONDS))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert faulty_fields(error) == fields

    @pytest.mark.parametrize("method", ["Generate", "Locate", "GetModel", "GetTimbreMap", "GetFile"])
    def test_undecodable_bodies_are_invalid(self, channel: grpc.Channel, method: str) -> None:
        # Replies are left undecoded too: there are none.
        kind = channel.unary_stream if method in ("Generate", "GetFile") else channel.unary_unary
        error = failure(
            lambda: kind(f"/{SERVICE}/{method}", None, None)(b"\xff\xff\xff", timeout=PATIENCE_SECONDS)
        )
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert faulty_fields(error) == ["request"]

    def test_an_unknown_bundle_is_not_found(self, stub: Any) -> None:
        calls = [
            lambda: stub.Generate(request(bundle="other"), timeout=PATIENCE_SECONDS),
            lambda: stub.Locate(pb.LocateRequest(bundle="other"), timeout=PATIENCE_SECONDS),
            lambda: stub.GetModel(pb.GetModelRequest(bundle="other"), timeout=PATIENCE_SECONDS),
            lambda: stub.GetTimbreMap(pb.GetTimbreMapRequest(bundle="other"), timeout=PATIENCE_SECONDS),
            lambda: stub.GetFile(pb.GetFileRequest(bundle="other"), timeout=PATIENCE_SECONDS),
        ]
        assert {failure(call).code() for call in calls} == {grpc.StatusCode.NOT_FOUND}

    def test_the_bundle_may_be_named(self, stub: Any, bundle: Bundle) -> None:
        named = {"bundle": bundle.manifest.name, "bundle_hash": bundle.manifest.bundle_hash}
        assert len(generate(stub, **named)) > 0

    def test_another_bundle_than_expected_is_a_failed_precondition(self, stub: Any, bundle: Bundle) -> None:
        error = failure(lambda: stub.Generate(request(bundle_hash="00" * 32), timeout=PATIENCE_SECONDS))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        detail = error_details_pb2.ErrorInfo()
        assert rpc_status.from_call(error).details[0].Unpack(detail)
        assert detail.metadata["served"] == bundle.manifest.bundle_hash

    def test_a_deadline_that_passes_ends_the_call_alone(self, stub: Any) -> None:
        error = failure(lambda: stub.Generate(request(seconds=2.4), timeout=0.001))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(generate(stub)) > 0

    def test_unknown_methods_are_unimplemented(self, channel: grpc.Channel) -> None:
        error = failure(
            lambda: channel.unary_unary(f"/{SERVICE}/Sing", None, None)(b"", timeout=PATIENCE_SECONDS)
        )
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


class TestDescription:
    def test_the_model_is_described(self, stub: Any, bundle: Bundle) -> None:
        reply = stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
        assert reply.manifest == bundle.manifest
        assert reply.engine.provider in ("CPUExecutionProvider", "CUDAExecutionProvider")
        assert reply.engine.n_slots == 32
        assert reply.engine.precision == ("fp16" if reply.engine.provider.startswith("CUDA") else "fp32")
        assert reply.engine.decoder_graph in {file.name for file in bundle.manifest.files}
        assert reply.engine.server_version
        defaults = reply.engine.default_sampling
        assert (defaults.temperature, defaults.top_k, defaults.top_p) == pytest.approx((0.6, 256, 0.95))

    def test_the_timbre_map_is_the_bundles(self, stub: Any, bundle: Bundle) -> None:
        reply = stub.GetTimbreMap(pb.GetTimbreMapRequest(), timeout=PATIENCE_SECONDS)
        assert reply.timbre_map == bundle.timbre_map

    @pytest.mark.parametrize("service", ["", SERVICE])
    def test_health_is_serving(self, channel: grpc.Channel, service: str) -> None:
        health = health_pb2_grpc.HealthStub(channel)
        reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_SECONDS)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING

    def test_health_of_an_unknown_service_is_not_found(self, channel: grpc.Channel) -> None:
        health = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=PATIENCE_SECONDS)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    @pytest.mark.parametrize("version", ["v1", "v1alpha"])
    def test_reflection_lists_services_and_describes_all(self, channel: grpc.Channel, version: str) -> None:
        ask: Any = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = ask(iter([asked]), timeout=PATIENCE_SECONDS)
        names = {service.name for service in reply.list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health"} <= names
        symbols = [*names, f"{SERVICE}.Generate", "timbrel.v1.GenerateRequest.pitch", "google.rpc.BadRequest"]
        described = (reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in symbols)
        for reply in ask(described, timeout=PATIENCE_SECONDS):
            assert reply.WhichOneof("message_response") == "file_descriptor_response", reply
        unknown = (
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)
            for name in ("", SERVICE[:-1], f"{SERVICE}.Nope", ".")
        )
        for reply in ask(unknown, timeout=PATIENCE_SECONDS):
            assert reply.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


class TestFiles:
    def fetch(self, stub: Any, name: str, offset: int = 0) -> list[pb.GetFileResponse]:
        return list(stub.GetFile(pb.GetFileRequest(name=name, offset=offset), timeout=PATIENCE_SECONDS))

    def test_every_file_for_clients_arrives_whole(self, stub: Any, bundle: Bundle) -> None:
        for file in bundle.manifest.files:
            if file.client_fetchable:
                replies = self.fetch(stub, file.name)
                data = b"".join(reply.data for reply in replies)
                assert hashlib.sha256(data).hexdigest() == file.sha256
                assert all(len(reply.data) <= 1 << 20 for reply in replies)
                assert [reply.total_size for reply in replies] == [file.size] + [0] * (len(replies) - 1)

    def test_a_broken_transfer_resumes(self, stub: Any, bundle: Bundle, tiny_bundle: Path) -> None:
        largest = max((f for f in bundle.manifest.files if f.client_fetchable), key=lambda file: file.size)
        whole = (tiny_bundle / largest.name).read_bytes()
        for offset in (1, largest.size // 2, largest.size - 1, largest.size):
            replies = self.fetch(stub, largest.name, offset)
            assert b"".join(reply.data for reply in replies) == whole[offset:]
            assert replies[0].total_size == largest.size

    def test_an_offset_beyond_the_end_is_invalid(self, stub: Any) -> None:
        error = failure(lambda: self.fetch(stub, "timbre_map.json", offset=10**9))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert faulty_fields(error) == ["offset"]

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "model.safetensors",
            "decoder_step.onnx",
            "manifest.json",
            "../tiny_bundle/timbre_map.json",
            "/etc/passwd",
        ],
    )
    def test_nothing_else_is_handed_out(self, stub: Any, name: str) -> None:
        error = failure(lambda: self.fetch(stub, name))
        assert error.code() is grpc.StatusCode.NOT_FOUND
