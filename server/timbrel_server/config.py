"""The configuration of a server."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from timbrel_bundle.layout import MANIFEST
from timbrel_server.decoder.sessions import AUTO, PRECISIONS
from timbrel_server.options import ConfigError, check_options, option, read_whole

DEFAULT_BUNDLE_NAME = "default"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
SHORTEST_TOKEN = 8

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<folder>.+)", re.DOTALL)


@dataclass(frozen=True)
class BundleSource:
    """A bundle's folder, and its name."""

    folder: Path

    name: str = ""
    """Empty: the manifest's own."""

    may_ship: bool = field(default=False, compare=False)
    """Whether it is the bundle that ships where there is no such folder."""

    def beside(self, folder: Path) -> BundleSource:
        """Returns it as it is meant where it is written in this folder.

        Raises:
            ConfigError: no bundle ships with this installation.
        """
        path = folder / self.folder
        if self.may_ship and not path.is_dir():
            path = default_bundle_path()
        return BundleSource(path, self.name)

    def __str__(self) -> str:
        """Writes what `read_bundle_source` reads as this one, with ./ before what it would take for more."""
        folder = str(self.folder)
        if folder == DEFAULT_BUNDLE_NAME or (not self.name and _NAMED.fullmatch(folder)):
            folder = os.path.join(os.curdir, folder)
        return f"{self.name}={folder}" if self.name else folder


def read_bundle_source(text: str) -> BundleSource:
    """Reads "DIR" or "NAME=DIR"; "default", where no folder beside it is called so, is the bundle that ships.

    Raises:
        ValueError: it is neither.
    """
    named = _NAMED.fullmatch(text)
    folder = named["folder"] if named else text
    if not folder.strip():
        raise ValueError("expected DIR or NAME=DIR")
    name = named["name"] if named else ""
    return BundleSource(Path(os.path.expanduser(folder)), name, folder == DEFAULT_BUNDLE_NAME)


def read_port(text: str) -> int:
    """Reads the number of a port. Raises ValueError."""
    if text.startswith(("tcp://", "udp://")):
        raise ValueError(
            "expected a whole number; Kubernetes sets this variable for a Service of that name,"
            " unless the pod says enableServiceLinks: false"
        )
    return read_whole(text)


@dataclass(frozen=True)
class ServerConfig:
    """The options of one server.

    Raises:
        ConfigError: naming the first option out of its range, or two that do not go together.
    """

    bundles: tuple[BundleSource, ...] = option(
        (),
        "bundle",
        "bundle folder, and what requests call it (default: its manifest's name); give it again to serve"
        " several, the first of which is meant where a request names none (default: the bundle that ships)",
        read=read_bundle_source,
        metavar="[NAME=]DIR",
    )
    """The bundles to serve, one engine each. Empty: the bundle that ships."""

    host: str = option("127.0.0.1", "host", "address to listen on")
    """The loopback alone unless asked: what listens elsewhere wants tokens or certificates."""

    port: int = option(50051, "port", "0 takes a free one", read=read_port, metavar="PORT", within=(0, 65535))

    n_processes: int = option(
        1,
        "processes",
        "servers that share the address, each a process with engines, slots and limits of its own; on Linux"
        " the kernel shares connections out among them",
        within=(1, 256),
    )
    """1: no parent beside the one server."""

    reuse_port: bool = option(
        False,
        "reuse_port",
        "listen once notes can be written, on a port that other servers of this user with this option may"
        " share (SO_REUSEPORT)",
    )
    """What --processes starts its servers with."""

    provider: str = option(
        "auto", "provider", "where to run: auto is CUDA where it works", metavar="auto|cpu|cuda"
    )

    precision: str = option(AUTO, "precision", "of the decoder's arithmetic", choices=PRECISIONS)
    """Every engine's. AUTO is the provider's usual one."""

    fast: bool = option(
        False,
        "fast",
        "use every batch size, even where a note may then get other codes than in other company",
    )
    """Off: by default a request gives the same codes alone or in any company."""

    devices: tuple[int, ...] = option(
        (0,),
        "device",
        "CUDA device, by its number; give it again for several, which share one queue, or which --processes"
        " share out (default: 0)",
        within=(0, 1024),
    )
    """Each bundle has an engine on every one of them."""

    n_slots: int = option(32, "slots", "notes written at once, by each engine", within=(1, 1024))
    """As many keys as a pianist's pedal holds. On a CPU more would gain little, and where all are taken each
    note's first sound would come later."""

    n_threads: int = option(
        0,
        "threads",
        "threads of a step; 0: one per core, or as many as a container's quota is worth; shared out among"
        " processes",
        within=(0, 1024),
    )

    queue_capacity: int = option(256, "queue", "requests that may wait for a slot", within=(1, 1_000_000))
    """Enough for a client that renders a whole instrument in one go; further ones are told to come back."""

    queue_frames: int | None = option(
        None,
        "queue_frames",
        "frames of work that may wait for a slot (default: three quarters of what --queue longest notes are)",
        within=(1, 1_000_000_000),
    )
    """Long notes fill the queue sooner than short ones."""

    grace_seconds: float = option(
        30.0, "grace", "how long to finish notes when asked to end", metavar="SECONDS", within=(0, 86_400)
    )
    """A note takes less."""

    stall_seconds: float = option(
        30.0,
        "stall",
        "an engine whose step takes longer has stalled: the server ends with status 1",
        metavar="SECONDS",
        within=(0.1, 86_400),
    )
    """Steps take milliseconds; a machine that swaps may take seconds."""

    failure_grace_seconds: float = option(
        5.0,
        "failure_grace",
        "how long to say NOT_SERVING, before it ends, once an engine has failed",
        metavar="SECONDS",
        within=(0, 86_400),
    )
    """Long enough for load balancers to see it."""

    token: str | None = option(None, "token", "the one token calls must bring", secret=True)
    """Of a caller named `default`."""

    token_file: Path | None = option(
        None, "token_file", "lines NAME:TOKEN, one of which calls must bring as `authorization: Bearer TOKEN`"
    )

    allow_anonymous: bool = option(
        False, "allow_anonymous", "let anybody in, though the address is not a loopback one"
    )

    insecure: bool = option(
        False, "insecure", "let tokens travel unencrypted, though the address is not a loopback one"
    )

    tls_certificate: Path | None = option(None, "tls_cert", "the server's certificate chain, PEM")

    tls_key: Path | None = option(None, "tls_key", "its private key, PEM")

    client_authority: Path | None = option(
        None, "client_ca", "callers must bring a certificate that one of these signed, PEM (mutual TLS)"
    )

    max_message_bytes: int = option(
        4 << 20, "max_message_bytes", "largest request", metavar="BYTES", within=(1024, 1 << 30)
    )
    """A recording to be located is the largest, up to 3 MiB."""

    max_streams: int | None = option(
        None,
        "max_streams",
        "calls at once on one connection; others wait (default: 128 more than a caller's share of all)",
        within=(1, 1_000_000),
    )
    """Each may send some 64 KiB before anybody reads a byte of it."""

    max_connections: int = option(
        4096,
        "max_connections",
        "connections at once; further ones are closed before they say a word",
        within=(1, 1_000_000),
    )
    """Fewer where the process may open fewer files."""

    caller_share: float = option(
        0.25,
        "caller_share",
        "part that one caller may take of slots, of connections, and of each limit below that callers share",
        metavar="0..1",
    )
    """A caller is who brings a token or certificate; of strangers, the network they come from."""

    max_calls: int | None = option(
        None,
        "max_calls",
        "calls at once; further ones are refused (default: eight times the slots, at least 2048)",
        within=(1, 1_000_000),
    )

    max_item_streams: int = option(
        256,
        "max_item_streams",
        "GenerateBatch, ModelStreamInfer and Play at once; further ones wait, and Play is refused",
        within=(1, 1_000_000),
    )
    """Each may be in the middle of a message of `max_message_bytes`."""

    max_bodies: int = option(
        64,
        "max_bodies",
        "requests that are being received at once; further ones wait unread",
        within=(1, 1_000_000),
    )
    """Each may be of `max_message_bytes`."""

    max_notes: int | None = option(
        None,
        "max_notes",
        "notes of streams in hand at once, the next one of each stream included; further items wait unread"
        " (default: 64 times the slots, at least twice --max-item-streams)",
        within=(1, 10_000_000),
    )

    max_audio_bytes: int = option(
        128 << 20,
        "max_audio_bytes",
        "audio that is being made here and not yet read by its caller; further notes wait as codes",
        metavar="BYTES",
        within=(1 << 20, 1 << 40),
    )
    """An estimate: by the length that was asked for, four bytes a sample."""

    max_locates: int = option(
        16, "max_locates", "recordings in hand to be located; further ones wait unread", within=(1, 10_000)
    )
    """Each may hold some megabytes of sound."""

    max_files: int = option(
        16, "max_files", "files that are fetched at once; further ones wait", within=(1, 100_000)
    )

    max_health_calls: int = option(
        1024,
        "max_health_calls",
        "health checks and watches at once; the oldest make room",
        within=(1, 1_000_000),
    )
    """They need no token."""

    max_in_flight: int | None = option(
        None,
        "max_in_flight",
        "notes of one stream in hand at once; it is read no further (default: twice the slots, at least 32)",
        within=(1, 100_000),
    )
    """Replies that a caller does not read have to be kept for it. GetModel says it."""

    max_batch: int = option(
        32, "max_batch", "notes of one inference request, which is answered whole", within=(1, 1024)
    )
    """The reply holds them all: megabytes of sound each, at worst. Streams of notes have no such limit."""

    max_seconds: float | None = option(
        None,
        "max_seconds",
        "how long a key may be held (default: as long as each bundle can)",
        metavar="SECONDS",
        within=(0.01, 86_400),
    )
    """GetModel gives it as the bundle's own."""

    metrics_host: str | None = option(
        None, "metrics_host", "where /metrics is (default: --host)", metavar="HOST"
    )

    metrics_port: int | None = option(
        None,
        "metrics_port",
        "serve /metrics, /livez and /readyz over HTTP; 0 takes a free port (default: no)",
        read=read_port,
        metavar="PORT",
        within=(0, 65535),
    )

    otlp_endpoint: str | None = option(
        None,
        "otlp_endpoint",
        "send traces to this collector, by OTLP over gRPC, such as http://127.0.0.1:4317"
        " (default: to none, but where OTEL_* variables ask for it)",
        metavar="URL",
    )
    """Further options are OpenTelemetry's own variables: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, ..."""

    log_format: str = option("text", "log_format", "of the log", choices=LOG_FORMATS)

    log_level: str = option("info", "log_level", "what to log", choices=LOG_LEVELS)

    exit_with_parent: bool = option(False, "exit_with_parent", "end when the standard input does")

    def __post_init__(self) -> None:
        check_options(self)
        _check_values(self)
        _check_access(self)

    @property
    def n_calls(self) -> int:
        """Calls at once. Where slots are many, one caller may have more than they are."""
        return self.max_calls or max(2048, 8 * self.n_slots)

    @property
    def has_parent(self) -> bool:
        """Whether it is one of the servers of --processes."""
        return self.reuse_port and self.exit_with_parent

    @property
    def has_tokens(self) -> bool:
        """Whether calls must bring a token."""
        return self.token is not None or self.token_file is not None


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own, which no other can reach."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def default_bundle_path() -> Path:
    """Finds the bundle that ships: within the installed package, or beside it in a checkout.

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


def _check_values(config: ServerConfig) -> None:
    if (config.n_processes > 1 or config.reuse_port) and not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("this system lets no processes share a port: leave processes and reuse_port out")
    if not config.devices:
        raise ConfigError("device names none: leave it out, or name one, such as 0")
    if len(set(config.devices)) < len(config.devices):
        raise ConfigError(f"device {', '.join(map(str, config.devices))}: each is to be named once")
    if not 0 < config.caller_share <= 1:
        raise ConfigError(f"caller_share {config.caller_share:g} is out of range: more than 0, 1 at most")
    if not config.host:
        raise ConfigError("host is empty: give an address, such as 127.0.0.1")
    if "/" in config.host:
        raise ConfigError(f"host {config.host}: no URL and no Unix socket, but an address, such as 127.0.0.1")
    if config.token is not None:
        check_token(config.token, "the token")
    if config.otlp_endpoint is not None:
        _check_otlp_endpoint(config.otlp_endpoint)
    names = [source.name for source in config.bundles]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise ConfigError(f"two bundles are called {twice!r}: give each a name of its own")


def _check_access(config: ServerConfig) -> None:
    if config.token is not None and config.token_file is not None:
        raise ConfigError("both token and token_file are given: leave one out")
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise ConfigError("tls_cert and tls_key go together: give both or none")
    if config.client_authority is not None and config.tls_certificate is None:
        raise ConfigError("client_ca asks for certificates, which needs TLS: give tls_cert and tls_key too")
    if is_loopback(config.host):
        return
    if not config.has_tokens and config.client_authority is None and not config.allow_anonymous:
        raise ConfigError(
            f"host {config.host} can be reached from other machines, and nobody is asked who they are:"
            " give --token-file or --client-ca, or --allow-anonymous to let anybody in"
        )
    if config.has_tokens and config.tls_certificate is None and not config.insecure:
        raise ConfigError(
            f"tokens would travel unencrypted to {config.host}: give --tls-cert and --tls-key,"
            " or --insecure where the network itself can be trusted"
        )


def check_token(token: str, whose: str) -> None:
    """Raises ConfigError, which does not hold it, where it is too short, or no caller could bring it.

    Args:
        whose: begins the message.
    """
    if len(token) < SHORTEST_TOKEN or any(character.isspace() for character in token):
        raise ConfigError(f"{whose} must have {SHORTEST_TOKEN} characters at least, none of them blank")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{whose} may hold ASCII letters, digits and signs only: gRPC carries no others")


def _check_otlp_endpoint(endpoint: str) -> None:
    if "@" in endpoint:  # not repeated here: nor would the log be the place for it
        raise ConfigError("otlp_endpoint holds a name or password: send them by OTEL_EXPORTER_OTLP_HEADERS")
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"otlp_endpoint {endpoint!r} should begin with http:// (unencrypted) or https://")
