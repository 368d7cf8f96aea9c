"""The standard input's end, as whoever started a process leaves it."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from timbrel_bundle import standard_streams

PATIENCE_SECONDS = 60.0


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Stands for the standard input: the end that is read, and the other."""
    inner, outer = os.pipe()
    monkeypatch.setattr(standard_streams, "STANDARD_INPUT", inner)
    yield inner, outer
    os.close(inner)


def assert_it_ends_with(outer: int) -> None:
    waiting = threading.Thread(target=standard_streams.wait_for_end_of_input, daemon=True)
    waiting.start()
    os.write(outer, b"words")
    waiting.join(0.1)
    assert waiting.is_alive()
    os.close(outer)
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()


def test_it_is_read_until_it_ends(pipe: tuple[int, int]) -> None:
    assert_it_ends_with(pipe[1])


def test_on_windows_nobody_waits_in_a_pipe(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that are loaded meanwhile would wait, too, such as numpy (issue 24290) and onnxruntime."""
    states = select.poll()
    states.register(pipe[0], select.POLLIN)
    read = os.read

    def peek(handle: int, _: int) -> tuple[int, int]:
        found = dict(states.poll(0)).get(handle, 0)
        if found & select.POLLHUP and not found & select.POLLIN:
            raise BrokenPipeError
        return (1, 0) if found & select.POLLIN else (0, 0)

    def read_at_once(descriptor: int, n_bytes: int) -> bytes:
        assert states.poll(0), "this would wait"
        return read(descriptor, n_bytes)

    monkeypatch.setitem(sys.modules, "_winapi", SimpleNamespace(PeekNamedPipe=peek))
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(get_osfhandle=lambda descriptor: descriptor))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(standard_streams, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(os, "read", read_at_once)
    assert_it_ends_with(pipe[1])
