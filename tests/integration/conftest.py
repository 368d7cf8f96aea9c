"""What several tests of the command line need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timbrel.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `timbrel` with these arguments: exit status, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
