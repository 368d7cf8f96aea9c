"""`timbrel serve`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
from pathlib import Path

from timbrel_server.app import serve
from timbrel_server.config import ConfigError, ServerConfig, default_bundle_path

TOKEN_VARIABLE = "TIMBREL_TOKEN"
"""Environment variable: the token that calls must bring, where no --token-file is given."""

_DESCRIPTION = "Serves a bundle over gRPC until SIGTERM or Ctrl-C, then finishes the notes in hand."
_EPILOG = f"""\
One line on the standard output says that notes can be asked for: where, which bundle, and the provider really
in use.
Where {TOKEN_VARIABLE} is set or --token-file given, calls must bring it as `authorization: Bearer TOKEN`.
The connection is not encrypted: put a proxy in front before leaving the loopback.
"""


class ServeCommand:
    """The subcommand, as the group `timbrel.commands` wants it."""

    help = "serve a bundle over gRPC"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of ServerConfig."""
        of = ServerConfig.__dataclass_fields__
        parser.description = _DESCRIPTION
        parser.epilog = _EPILOG
        add = parser.add_argument
        add("--bundle", type=Path, metavar="DIR", help="bundle folder (default: the one that ships)")
        add("--host", default=of["host"].default, help="address to listen on (default %(default)s)")
        add("--port", type=int, default=of["port"].default, help="0 takes a free one (default %(default)s)")
        add(
            "--provider",
            default=of["provider"].default,
            metavar="auto|cpu|cuda",
            help="where to run (default %(default)s: CUDA where it works)",
        )
        add("--slots", type=int, default=of["n_slots"].default, help="notes at once (default %(default)s)")
        add(
            "--threads",
            type=int,
            default=of["n_threads"].default,
            help="threads of a step; 0, the default: one per core",
        )
        add(
            "--queue",
            type=int,
            default=of["queue_capacity"].default,
            metavar="N",
            help="requests that may wait for a slot (default %(default)s)",
        )
        add(
            "--grace",
            type=float,
            default=of["grace_seconds"].default,
            metavar="SECONDS",
            help="how long to finish notes when asked to end (default %(default)g)",
        )
        add("--token-file", type=Path, metavar="FILE", help="file that holds the token calls must bring")
        add("--exit-with-parent", action="store_true", help="end when the standard input does")

    def run(self, args: argparse.Namespace) -> int:
        """Serves; returns 0 once drained."""
        config = config_from_args(args)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(serve(config, _announce))
        return 0


command = ServeCommand()


def config_from_args(args: argparse.Namespace) -> ServerConfig:
    """
    Raises:
        ConfigError: an option makes no sense.
        OSError: the token file cannot be read.
    """
    return ServerConfig(
        bundle=args.bundle if args.bundle is not None else default_bundle_path(),
        host=args.host,
        port=args.port,
        provider=args.provider,
        n_slots=args.slots,
        n_threads=args.threads,
        queue_capacity=args.queue,
        grace_seconds=args.grace,
        token=_token(args.token_file),
        exit_with_parent=args.exit_with_parent,
    )


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise ConfigError(f"{path}: the token file is empty")
    return token


def _announce(line: str) -> None:
    """Whoever started the server may have closed its output: that is no reason to end."""
    with contextlib.suppress(OSError):
        print(line, flush=True)
