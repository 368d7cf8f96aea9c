"""Each error's status, as it goes over the wire."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2

from timbrel_server import errors
from timbrel_server.config import ServerConfig
from timbrel_server.rpc.handlers import LARGEST_REQUEST_BYTES
from timbrel_server.rpc.listener import server_options

PROTOCOL = Path(__file__).resolve().parents[3] / "protos" / "timbrel" / "v1" / "synthesizer.proto"


def test_the_protocol_tells_how_large_requests_may_be() -> None:
    words = PROTOCOL.read_text(encoding="utf-8")
    options = dict(server_options(ServerConfig(), 1))
    assert f"the message ({options['grpc.max_receive_message_length'] >> 20} MiB by default)" in words
    assert f"the metadata ({options['grpc.max_metadata_size'] >> 10} KiB)" in words
    assert f"{LARGEST_REQUEST_BYTES >> 10} KiB at most" in words


def test_an_invalid_request_names_each_field() -> None:
    status = errors.InvalidRequestError([("pitch", "too low"), ("seconds", "too long")]).to_status()
    detail = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(detail)
    assert [(each.field, each.description) for each in detail.field_violations] == [
        ("pitch", "too low"),
        ("seconds", "too long"),
    ]
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.message == "pitch: too low; seconds: too long"


@pytest.mark.parametrize("sign", ["x", "%", "\n", "é", "音", "\N{VIOLIN}"])
def test_a_status_fits_in_the_headers_that_peers_take(sign: str) -> None:
    status = errors.InvalidRequestError([(sign * 100, sign * 1000)] * 40).to_status()
    n_bytes = len(quote(status.message)) + len(base64.b64encode(status.SerializeToString()))
    assert n_bytes < 8192 - 1024
    detail = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(detail) and detail.field_violations[0].field == sign * 77 + "..."
    assert status.message.startswith(sign) and status.message.endswith("...")


def test_an_overloaded_server_says_when_to_retry() -> None:
    detail = error_details_pb2.RetryInfo()
    assert errors.OverloadedError("full", retry_seconds=1.25).to_status().details[0].Unpack(detail)
    assert detail.retry_delay.ToMilliseconds() == 1250


def test_a_bundle_mismatch_tells_both_hashes() -> None:
    detail = error_details_pb2.ErrorInfo()
    assert errors.BundleMismatchError(expected="aa", served="bb").to_status().details[0].Unpack(detail)
    assert dict(detail.metadata) == {"expected": "aa", "served": "bb"}


def test_an_internal_error_tells_its_id_and_nothing_else() -> None:
    detail = error_details_pb2.ErrorInfo()
    status = errors.InternalError("a1b2").to_status()
    assert status.details[0].Unpack(detail)
    assert detail.metadata["error_id"] == "a1b2"
    assert status.message == "internal error a1b2"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
        (errors.UnavailableError, grpc.StatusCode.UNAVAILABLE),
        (errors.UnauthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_the_plain_ones_have_their_code(kind: type[errors.ServiceError], code: grpc.StatusCode) -> None:
    status = kind("what is wrong").to_status()
    assert (status.code, status.message) == (code.value[0], "what is wrong")
