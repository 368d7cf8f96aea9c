"""Where the servers of a job are: options, the environment, both joined by commas."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

import timbrel
from timbrel.library.plan.voice import parse_path
from timbrel.library.render.source import ClientSource, server_addresses


@pytest.mark.parametrize(
    ("given", "environment", "addresses"),
    [
        (None, "", []),
        (None, "one:1,two:2", ["one:1", "two:2"]),
        (None, " one:1 , ", ["one:1"]),
        (["one"], "other:9", ["one:50051"]),
        (["one:1", "two:2,three:3", "one:1"], "", ["one:1", "two:2", "three:3"]),
    ],
)
def test_addresses(given: list[str] | None, environment: str, addresses: list[str]) -> None:
    assert server_addresses(given, {"TIMBREL_SERVER": environment}) == addresses


@pytest.mark.parametrize("given", ["", "one:1,", "one:1,,two:2", "one two", "one:99999"])
def test_an_address_that_makes_no_sense_is_refused(given: str) -> None:
    with pytest.raises(timbrel.InvalidRequestError, match="server"):
        server_addresses([given], {})


def test_paths_are_read() -> None:
    assert parse_path("Violin:Trumpet:5") == ("Violin", "Trumpet", 5)
    assert parse_path("-0.5,0.25:Grand Piano:12") == ((-0.5, 0.25), "Grand Piano", 12)


@pytest.mark.parametrize(
    "text", ["", "Violin", "Violin:Trumpet", "Violin::5", "a:b:-5", "a:b:c", "a:b:5:6", "1,2,3:b:5"]
)
def test_a_path_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(timbrel.InvalidRequestError):
        parse_path(text)


def test_ctrl_c_ends_the_waiting_for_a_server_that_gives_nothing() -> None:
    """It is told here as Windows tells it, where it wakes nobody that waits."""
    ended, given_up = threading.Event(), []

    def stall(*_: object, **__: object) -> Iterator[None]:
        if not ended.wait(20.0):
            given_up.append(True)
        yield from ()

    client = Mock(timbrel.Client)
    client.model.return_value.n_slots = 1
    client.generate_many.side_effect = stall
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        list(ClientSource(client).render([("note", timbrel.NoteRequest("Violin"))]))
    ended.set()
    assert not given_up
