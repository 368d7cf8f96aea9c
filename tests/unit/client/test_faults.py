"""Each row of the design's table of faults."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

import timbrel
from timbrel import errors
from timbrel.core.faults import error_from_status


def details(*messages: Message) -> bytes:
    packed = []
    for message in messages:
        detail = any_pb2.Any()
        detail.Pack(message)
        packed.append(detail)
    return status_pb2.Status(details=packed).SerializeToString()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequestError),
        (grpc.StatusCode.NOT_FOUND, errors.NotFoundError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.OverloadedError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceededError),
        (grpc.StatusCode.CANCELLED, errors.CancelledError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.AuthenticationError),
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.BundleMismatchError),
        (grpc.StatusCode.INTERNAL, errors.ServerError),
        (grpc.StatusCode.UNKNOWN, errors.ServerError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.ServerError),
    ],
)
def test_each_status_has_its_error(code: grpc.StatusCode, kind: type[errors.TimbrelError]) -> None:
    error = error_from_status(code.value[0], "went wrong")  # type: ignore[index]
    assert type(error) is kind
    message, remedy = str(error)[:10], str(error)[10:]
    says_more = code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
    assert message == "went wrong" and bool(remedy) == says_more


def test_another_programs_server_is_told_as_such() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            timbrel.Client(f"127.0.0.1:{port}") as client,
            pytest.raises(errors.ServerError, match=r"Method not found!; .* no timbrel server"),
        ):
            client.model()
    finally:
        server.stop(None)


def test_an_invalid_request_names_each_field() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation
    bad = error_details_pb2.BadRequest(
        field_violations=[
            violation(field="pitch", description="must be 36..96, got 12"),
            violation(field="velocity", description="must be 1..127, got 0"),
        ]
    )
    error = error_from_status(3, "bad request", details(bad))
    assert isinstance(error, errors.InvalidRequestError)
    assert [field.field for field in error.fields] == ["pitch", "velocity"]
    assert "36..96" in str(error) and "1..127" in str(error)


def test_an_overloaded_server_says_when_to_try_again() -> None:
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000))
    error = error_from_status(8, "full", details(retry))
    assert isinstance(error, errors.OverloadedError)
    assert error.retry_after_seconds == pytest.approx(1.5)


def test_a_server_that_takes_no_more_calls_of_a_connection_is_no_server_that_is_gone() -> None:
    message = "Stream removed (RST_STREAM (Received RST_STREAM with error code 7))"  # REFUSED_STREAM
    error = error_from_status(14, message)
    assert isinstance(error, errors.OverloadedError) and error.retry_after_seconds


def test_a_server_error_carries_the_id_of_the_log() -> None:
    info = error_details_pb2.ErrorInfo(metadata={"error_id": "abc123"})
    error = error_from_status(13, "internal error", details(info))
    assert isinstance(error, errors.ServerError)
    assert error.error_id == "abc123"


def test_details_that_cannot_be_read_are_left_out() -> None:
    error = error_from_status(3, "bad request", b"\xff\xff\xff")
    assert isinstance(error, errors.InvalidRequestError)
    assert error.fields == ()


def test_a_message_is_one_line() -> None:
    assert str(error_from_status(13, "one\n  two\n")) == "one two"
    assert str(error_from_status(13, "")) != ""


@pytest.mark.parametrize("message", ["Received RST_STREAM with error code 2", "Internal error from Core"])
def test_a_call_that_was_cut_may_be_tried_again(message: str) -> None:
    error = error_from_status(13, message)
    assert isinstance(error, errors.UnavailableError)
