"""The command `timbrel serve`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from timbrel_server import own_version
from timbrel_server.app import serve
from timbrel_server.config import ServerConfig
from timbrel_server.observability.logs import set_up_logging
from timbrel_server.options import add_flags, gather
from timbrel_server.processes import serve_in_processes
from timbrel_server.rpc.auth import warn_if_public

_log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""A thread that wants to go on waits so long for the one that runs: at Python's own 5 ms the engine, which
asks some times a step, is held up by an event loop that has much to do."""

FAILED = 1
"""Exit status where an engine failed."""

_DESCRIPTION = "Serves bundles over gRPC until SIGTERM or Ctrl-C, then finishes the notes in hand."
_EPILOG = """\
examples:
  timbrel serve                                            the bundle that ships, for this machine alone
  timbrel serve --bundle DIR --port 0                      a bundle of one's own, on a free port
  timbrel serve --bundle piano=DIR --bundle organ=DIR      two, which requests name
  timbrel serve --host 0.0.0.0 --token-file tokens --tls-cert cert.pem --tls-key key.pem
  timbrel serve --processes 4 --metrics-port 9464          four servers behind one address and one /metrics
  timbrel serve --config serve.toml --metrics-port 9464 --log-format json

Each option is also a key of the TOML file (`slots = 32`) and a variable (TIMBREL_SLOTS=32, or with colons,
on Windows semicolons, between several values: TIMBREL_BUNDLE=piano=DIR:organ=DIR); flags win over variables,
variables over the file. A single token is a secret, so it has no flag: TIMBREL_TOKEN.
One line on the standard output says that notes can be asked for: where, which bundle, and the provider really
in use. Clients ask there with --server HOST:PORT, or TIMBREL_SERVER, and bring TIMBREL_TOKEN. SIGHUP reads
tokens, certificates and bundles anew, and ends no server: one whose terminal is closed goes on, unless it is
ended first. With --processes a process that ends is started again.
Exit status: 0 when asked to end, 1 when an engine has failed, 2 for options that make no sense.
"""


class ServeCommand:
    """The subcommand `serve`, as the group `timbrel.commands` wants it."""

    help = "serve bundles over gRPC"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of ServerConfig."""
        parser.description = _DESCRIPTION
        parser.epilog = _EPILOG
        add_flags(parser, ServerConfig)

    def run(self, args: argparse.Namespace) -> int:
        """Serves; returns 0 once drained."""
        sourced = gather(args, ServerConfig)
        sys.setswitchinterval(SWITCH_SECONDS)
        set_up_logging(sourced.config.log_format, sourced.config.log_level)
        if (file := Path(sourced.sources.get("token", ""))).is_file():  # and not a variable
            warn_if_public(file, file.stat())

        def announce(line: str) -> None:
            _log.info("timbrel %s, options: %s", own_version(), "; ".join(sourced.lines()))
            _print(line)

        try:
            if sourced.config.n_processes > 1:
                return asyncio.run(serve_in_processes(sourced.config, announce))
            if asyncio.run(serve(sourced.config, announce, _leave_at_once)):
                return 0
        except Exception:
            logging.shutdown()  # the line that says why it ends comes last
            raise
        _leave_at_once(False)
        return FAILED


command = ServeCommand()


def _print(line: str) -> None:
    """Prints a line; that whoever started the server has closed its output, or has not all letters of a
    bundle's name, is no reason to end."""
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(OSError):
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _leave_at_once(well: bool) -> None:
    """Ends the process: a thread that has stalled within a graph would hold up an orderly end for good.

    Args:
        well: whether no engine has failed.
    """
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed from the start
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(0 if well else FAILED)
