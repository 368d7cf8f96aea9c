"""`timbrel explore`: the timbre map in the browser."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from timbrel.cli.options import add_bundle_option
from timbrel.explore.options import DEFAULT_HOST, DEFAULT_PORT, ExploreOptions

NEEDED = ("starlette", "uvicorn", "websockets")
"""Packages of the extra; uvicorn itself would begin without the last."""

_EXAMPLES = """\
examples:
  timbrel explore                                   opens the browser; a private server is started
  timbrel explore --server studio:50051             the notes of another server
  timbrel explore --port 0 --no-browser             any free port; the address is printed
  timbrel explore --host 0.0.0.0 --certfile cert.pem --keyfile key.pem      for phones on the network too

Only this machine can open the page, unless --host says otherwise. Browsers on other machines allow
AudioWorklet and MIDI over HTTPS only, hence --certfile and --keyfile. The server's token (TIMBREL_TOKEN)
stays here: no page gets to see it. Ctrl-C ends the explorer, and the private server with it.
"""


class ExploreCommand:
    """Serves the page and passes its notes on to a server."""

    help = "hear the timbre map in the browser"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Opens the timbre map in the browser: look, listen and play, live on the model."
        parser.epilog = _EXAMPLES
        group = parser.add_argument_group("page")
        group.add_argument(
            "--port",
            type=int,
            default=DEFAULT_PORT,
            metavar="N",
            help="port of the page; 0 takes any (default %(default)s)",
        )
        group.add_argument(
            "--host",
            default=DEFAULT_HOST,
            metavar="HOST",
            help="address to listen on; 0.0.0.0 lets the whole network in (default %(default)s)",
        )
        group.add_argument(
            "--allow-host",
            action="append",
            default=[],
            metavar="NAME",
            help="a further name that browsers may call it by, such as that of a reverse proxy which passes"
            " on Host; may be given again",
        )
        group.add_argument("--no-browser", action="store_true", help="do not open the browser")
        group.add_argument(
            "--certfile", type=Path, metavar="FILE", help="serve HTTPS with this certificate (PEM)"
        )
        group.add_argument("--keyfile", type=Path, metavar="FILE", help="its private key (PEM)")
        server = parser.add_argument_group("server")
        server.add_argument(
            "--server",
            metavar="HOST:PORT",
            help="the server to play on; by default TIMBREL_SERVER, else a private one is started "
            "(the environment's TIMBREL_TOKEN is sent to a server that asks for it)",
        )
        add_bundle_option(server)

    def run(self, args: argparse.Namespace) -> int:
        for name in NEEDED:
            import_module(name)
        from timbrel.explore.run import explore

        return explore(
            ExploreOptions(
                host=args.host,
                port=args.port,
                allowed_hosts=tuple(args.allow_host),
                certfile=args.certfile,
                keyfile=args.keyfile,
                open_browser=not args.no_browser,
                bundle=args.bundle,
                server=args.server,
            )
        )


command = ExploreCommand()
