"""How far a training has come is told to a person by a bar, and to a log by a line now and then."""

from __future__ import annotations

import io
import sys

import pytest

from timbrel_training.progress import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_lines_now_and_then_and_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(description="tokens", total=1000, unit="note", initial=10) as shown:
        for _ in range(990):
            shown.update()
    lines = capsys.readouterr().err.replace("\r", "").splitlines()
    assert len(lines) <= 3 and all(line.startswith("tokens: ") for line in lines if line.strip())
    assert "tokens: 1000/1000" in lines[-1 if lines[-1].strip() else -2] and "█" not in "".join(lines)


def test_a_person_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(bar(iter("abc"), description="notes", total=3)) == [*"abc"]
    assert "notes: 100%|" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(bar(iter("abc"), description="notes", total=3, shown=False)) == [*"abc"]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
