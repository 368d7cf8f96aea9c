"""Long work told of where nobody watches: a line a minute."""

from __future__ import annotations

import io
import sys

import pytest

from timbrel import progress
from timbrel.progress import bar


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(clock: Clock, seconds: int, *, shown: bool = True, initial: int = 0) -> None:
    """A unit each second, of 600."""
    with bar("rendering", 600, "note", shown=shown, initial=initial) as each:
        for _ in range(seconds):
            clock.now += 1.0
            each.update()


def test_a_log_gets_a_line_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work(clock, 190)
    said = capsys.readouterr().err
    lines = said.splitlines()
    assert len(lines) == 3 and "\r" not in said
    assert lines[0] == "rendering: 60/600 [01:00<09:00,  1.00note/s]"
    assert lines[2].startswith("rendering: 180/600 [03:00<07:00")


def test_work_of_less_than_a_minute_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work(clock, 59)
    assert capsys.readouterr().err == ""


def test_what_is_not_shown_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work(clock, 500, shown=False)
    assert capsys.readouterr().err == ""


def test_what_was_done_before_is_no_speed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work(clock, 60, initial=480)
    assert capsys.readouterr().err == "rendering: 540/600 [01:00<01:00,  1.00note/s]\n"


def test_an_unknown_total_is_not_guessed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with bar("notes", None, "note") as each:
        clock.now += 60.0
        each.update(30)
    assert capsys.readouterr().err == "notes: 30 [01:00,  2.00s/note]\n"


def test_a_program_without_a_console_says_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    work(clock, 190)
    assert capsys.readouterr().out == ""  # where `print` turns to without a file


def test_who_watches_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    with bar("rendering", 10, "note") as each:
        each.update(10)
    assert "rendering" in terminal.getvalue() and "\r" in terminal.getvalue()
