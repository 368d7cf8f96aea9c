from __future__ import annotations

import math
from typing import Any

import pytest

from timbrel.errors import InvalidRequestError
from timbrel.settings import Address, ClientSettings, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("studio:1234", Address("studio", 1234)),
        ("studio", Address("studio", 50051)),
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        ("[::1]:80", Address("[::1]", 80)),
    ],
)
def test_reads_an_address(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":80", "studio:", "studio:0", "studio:99999", "http://studio:80", "a b", "::1", 50051]
)
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_address(text)
    assert caught.value.fields[0].field == "server"
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["studio,attic", "studio:1234,attic:1234"])
def test_says_where_several_servers_may_be_named(text: str) -> None:
    """In TIMBREL_SERVER, say, for the next library."""
    with pytest.raises(InvalidRequestError, match=r".several are for `timbrel library`., got"):
        parse_address(text)


def test_the_case_of_this_machines_name_does_not_count() -> None:
    assert parse_address("LocalHost:1234").is_loopback


def test_a_certificate_without_its_key_is_told_by_the_variables() -> None:
    with pytest.raises(InvalidRequestError, match="TIMBREL_CERT and TIMBREL_KEY"):
        ClientSettings.resolve("here:1", None, None, None, None, {"TIMBREL_CERT": "mine.pem"})


def address(server: str | None, environment: dict[str, str]) -> Address | None:
    return ClientSettings.resolve(server, None, None, None, None, environment).address


def test_the_argument_comes_before_the_environment() -> None:
    environment = {"TIMBREL_SERVER": "there:2"}
    assert address("here:1", environment) == Address("here", 1)
    assert address(None, environment) == Address("there", 2)
    assert address(None, {}) is None
    assert address(None, {"TIMBREL_SERVER": ""}) is None


@pytest.mark.parametrize("token", ["s3cret", "s3cret\r", " s3cret\n"])
def test_a_token_may_end_a_line(token: str) -> None:
    resolved = ClientSettings.resolve(None, None, None, None, None, {"TIMBREL_TOKEN": token})
    assert resolved.token == resolved.at("here:1", token, resolved.security).token == "s3cret"


@pytest.mark.parametrize("token", ["two\nlines", "grüße", "bell\a"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    for argument, environment in ((token, {}), (None, {"TIMBREL_TOKEN": token})):
        with pytest.raises(InvalidRequestError, match="ASCII letters, digits and signs only") as caught:
            ClientSettings.resolve("here:1", argument, None, None, None, environment)
        assert caught.value.fields[0].field == "token" and token not in str(caught.value)


def resolved(timeout: Any) -> ClientSettings:
    return ClientSettings.resolve("localhost", None, timeout, None, None, {})


def test_a_timeout_without_end_is_none() -> None:
    assert resolved(math.inf).timeout is None and resolved(1e12).timeout is None
    assert resolved(1e6).timeout == 1e6


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan, "5"])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidRequestError, match="timeout: must be above 0 seconds"):
        resolved(timeout)
