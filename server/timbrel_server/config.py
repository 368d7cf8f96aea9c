"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timbrel_bundle.layout import MANIFEST

DEFAULT_BUNDLE_NAME = "default"
MAX_SLOTS = 1024


class ConfigError(ValueError):
    """An option of the server makes no sense."""


@dataclass(frozen=True)
class ServerConfig:
    """Options of one server.

    Raises:
        ConfigError: naming the first option out of its range.
    """

    bundle: Path
    """Folder of the bundle to serve."""

    host: str = "127.0.0.1"
    """Address to listen on. The loopback alone unless asked: the connection is not encrypted."""

    port: int = 50051
    """0 takes a free one."""

    provider: str = "auto"
    """Where the graphs run: cpu, cuda, or auto for CUDA where it works."""

    n_slots: int = 16
    """Notes written at once. On a CPU more would gain little and let each note's first sound come later."""

    n_threads: int = 0
    """Threads of one step; 0 leaves it to the runtime, which takes one per core."""

    queue_capacity: int = 256
    """Requests that may wait for a slot. Enough for a client that renders a whole instrument in one go;
    further ones are told to come back."""

    grace_seconds: float = 30.0
    """How long a server that is asked to end goes on with what it has accepted. A note takes less."""

    token: str | None = None
    """Where set, every call but health checks must bring it as `authorization: Bearer TOKEN`."""

    exit_with_parent: bool = False
    """Whether to end when the standard input does."""

    def __post_init__(self) -> None:
        _check_whole("port", self.port, 0, 65535)
        _check_whole("slots", self.n_slots, 1, MAX_SLOTS)
        _check_whole("threads", self.n_threads, 0, 1024)
        _check_whole("queue", self.queue_capacity, 1, 1_000_000)
        if not 0 <= self.grace_seconds <= 86_400:
            raise ConfigError(f"grace {self.grace_seconds:g} is out of range: 0..86400 seconds")
        if not self.host:
            raise ConfigError("host is empty: give an address, such as 127.0.0.1")
        if self.token == "":
            raise ConfigError("the token is empty")


def default_bundle_path() -> Path:
    """The bundle that ships: within the installed package, or beside it in a checkout.

    Raises:
        ConfigError: there is none.
    """
    package = Path(__file__).resolve().parent
    candidates = [folder / "bundles" / DEFAULT_BUNDLE_NAME for folder in (package, package.parent)]
    for candidate in candidates:
        if (candidate / MANIFEST).is_file():
            return candidate
    raise ConfigError(
        f"no bundle ships with this installation (looked in {candidates[0]}): name one with --bundle"
    )


def _check_whole(option: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(f"{option} {value} is out of range: {lowest}..{highest}")
