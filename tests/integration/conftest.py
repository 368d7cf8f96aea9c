"""What several tests of the command line need."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bundle_variants import holding
from server_process import ServerProcess

from timbrel.cli import main
from timbrel_server.config import default_bundle_path

HOLD_FRAMES = 112
"""So many of a note does the model write in `bounded`, as in the bundle that ships."""


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


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the bundle that ships, but that it holds no note for longer than 4 seconds."""
    bundle = tmp_path_factory.mktemp("bounded") / "bundle"
    server = ServerProcess(holding(default_bundle_path(), bundle, HOLD_FRAMES, seconds_max=4.0))
    yield server.address
    server.close()
