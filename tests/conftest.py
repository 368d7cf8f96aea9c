"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from server_process import ServerProcess

if "PYTEST_XDIST_WORKER" in os.environ:
    # Several workers share the cores: threads of one would only wait for those of another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

TINY_BUNDLE = Path(__file__).resolve().parent / "data" / "tiny_bundle"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker takes all tests of the page: browsers that sound at once leave gaps in each other."""
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)

    return OneBrowser(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def runtime_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is told as on a machine without a GPU."""
    monkeypatch.setattr("timbrel.errors._has_gpu_runtime", lambda: False)


@pytest.fixture(scope="session")
def tiny_bundle() -> Path:
    """Folder of the committed bundle that is small enough for every test. Not to be written to."""
    return TINY_BUNDLE


@pytest.fixture(scope="session")
def server_address(tiny_bundle: Path) -> Iterator[str]:
    """HOST:PORT of a real server of the tiny bundle, shared by all tests: leave it as it was found."""
    server = ServerProcess(tiny_bundle, is_forked=False)
    yield server.address
    server.close()


@pytest.fixture
def start_server(tiny_bundle: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts further servers of the tiny bundle, `start_server("--slots", "1")`; they end with the test."""
    servers: list[ServerProcess] = []

    def start(*options: str, bundle: Path = tiny_bundle, **settings: Any) -> ServerProcess:
        servers.append(ServerProcess(bundle, *options, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """A block in which no file takes more than so many bytes, which ends as on a full disk."""
    resource = pytest.importorskip("resource")

    @contextmanager
    def limited(n_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
