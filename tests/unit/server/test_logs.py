"""The log: nothing that a caller says passes for a line of it, and nobody waits for who does not read it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from timbrel_server.observability import logs
from timbrel_server.observability.logs import DroppingHandler, JournalFormatter, TextFormatter, is_journal


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("timbrel_server.calls", logging.INFO, "", 0, "%s", (message,), None)


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2J", "\u2028", "\x85"])
def test_a_message_is_one_line_whatever_it_says(end: str) -> None:
    line = TextFormatter().format(record(f"for certificate:mallory{end}2026-11-22 INFO forged"))
    assert line.splitlines() == [line] and line.isprintable()


def test_an_exception_s_lines_are_indented() -> None:
    try:
        raise RuntimeError("broken\n2026-11-22 INFO forged")
    except RuntimeError:
        entry = record("failed")
        entry.exc_info = sys.exc_info()
    first, *others = TextFormatter().format(entry).splitlines()
    assert first.endswith("failed") and any("forged" in line for line in others)
    assert all(line.startswith("    ") for line in others)


def test_the_journal_gets_the_priority_of_each_line() -> None:
    entry = record("failed")
    entry.levelno, entry.levelname, entry.stack_info = logging.ERROR, "ERROR", "one\ntwo"
    lines = JournalFormatter(TextFormatter()).format(entry).split("\n")
    assert [line[:3] for line in lines] == ["<3>"] * 3
    reader, writer = os.pipe()
    named = f"{os.fstat(writer).st_dev}:{os.fstat(writer).st_ino}"
    assert is_journal(writer, {"JOURNAL_STREAM": named})
    assert not any(is_journal(writer, each) for each in ({}, {"JOURNAL_STREAM": "1:2"}))
    os.close(reader)
    os.close(writer)


def test_a_message_that_cannot_be_made_is_counted_and_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DroppingHandler, "n_lost", 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    handler = DroppingHandler(nowhere)
    handler.setFormatter(TextFormatter())
    try:
        handler.handle(logging.LogRecord("elsewhere", logging.INFO, "", 0, "%d of them", ("some",), None))
        assert DroppingHandler.n_lost == 1
    finally:
        handler.close()
        os.close(nowhere)


def test_a_console_of_windows_is_not_written_to_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take them for letters of the code page that it has; what Python opens it as knows better."""
    pty = pytest.importorskip("pty")
    terminal, console = pty.openpty()
    as_windows = SimpleNamespace(name="nt", isatty=os.isatty, write=lambda to, _: os.write(to, b"in bytes"))
    monkeypatch.setattr(logs, "os", as_windows)
    handler = DroppingHandler(console)
    try:
        handler.handle(record("Jürgen"))
        assert os.read(terminal, 100).decode() == "Jürgen\r\n"
    finally:
        handler.close()
        os.close(terminal)
        os.close(console)


def test_lines_that_nobody_reads_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_LINES", 100)
    monkeypatch.setattr(DroppingHandler, "n_lost", 0)
    reader, writer = os.pipe()
    handler = DroppingHandler(writer)
    try:
        for number in range(5000):  # more than the pipe and the queue hold
            handler.handle(record(f"{number} " + "x" * 1000))
        received = b""
        while b"\n4999" not in received and b"were dropped" not in received:
            received += os.read(reader, 1 << 16)
            handler.handle(record("one more"))
        assert received.startswith(b"0 xxx")
        assert 4000 < DroppingHandler.n_lost < 5000
    finally:
        os.close(reader)  # what is being written fails, else it would go on into whatever is opened next
        handler.close()
        os.close(writer)


def test_lines_of_several_processes_do_not_mix_in_a_pipe() -> None:
    reader, writer = os.pipe()
    handlers = [DroppingHandler(writer) for _ in range(3)]  # each with a thread of its own, as processes have
    lines = [f"{name} {number} " + name * 150 for name in "abc" for number in range(500)]
    for line in lines:
        handlers["abc".index(line[0])].handle(record(line))
    received = b""
    while received.count(b"\n") < len(lines):
        received += os.read(reader, 1000)
    for handler in handlers:
        handler.close()
    os.close(reader)
    os.close(writer)
    assert sorted(received.decode().splitlines()) == sorted(lines)


def test_why_a_server_does_not_start_is_the_last_line() -> None:
    """The log is written by a thread, which gathers lines for a while."""
    code = """
import logging, sys, time
from timbrel_server import cli

async def serve(*_):
    logging.warning("one")
    time.sleep(0.02)  # it is written, and the next line waits for more
    logging.warning("two")
    raise ValueError("no bundle")

cli.serve = serve
sys.argv = ["timbrel_server"]
from timbrel_server.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    first, second, last = done.stderr.splitlines()
    assert (done.returncode, last) == (2, "timbrel: no bundle")
    assert first.endswith("one") and second.endswith("two")
