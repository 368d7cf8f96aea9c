"""What several tests of the command line and of servers inside a test need."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bundle_variants import holding
from server_process import ServerProcess

from timbrel import decoder
from timbrel.cli import main
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_server.config import default_bundle_path
from timbrel_server.engine.scheduler import FrameClock

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
def codecs_loaded_once() -> Iterator[None]:
    """Commands that are run here one after the other share the codec of a bundle: to load it takes most of
    the time of the short ones. It has one thread, for workers share the cores."""
    loaded: dict[bytes, CodecDecoder] = {}

    def load(bundle: Bundle, n_threads: int = 0) -> CodecDecoder:
        key = bundle.manifest.SerializeToString(deterministic=True)
        if key not in loaded:
            loaded[key] = CodecDecoder(bundle, n_threads=1)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "CodecDecoder", load)
        yield


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """HOST:PORT of a server of the bundle that ships, shared by all tests: leave it as it was found."""
    server = ServerProcess(default_bundle_path())
    yield server.address
    server.close()


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the bundle that ships, but that it holds no note for longer than 4 seconds."""
    bundle = tmp_path_factory.mktemp("bounded") / "bundle"
    server = ServerProcess(holding(default_bundle_path(), bundle, HOLD_FRAMES, seconds_max=4.0))
    yield server.address
    server.close()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The frame of real time that it is: it stands still unless the test moves it on."""
    ticks = [0]
    monkeypatch.setattr(FrameClock, "tick", property(lambda clock: ticks[0]))
    return ticks
