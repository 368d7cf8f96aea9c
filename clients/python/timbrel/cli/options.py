"""The options that every command talking to a server has."""

from __future__ import annotations

import argparse
import json
from typing import Any

from timbrel.client import DEFAULT_TIMEOUT_SECONDS, Client


def add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="the server to ask; by default TIMBREL_SERVER, else a private one is started for this call "
        "(the environment's TIMBREL_TOKEN is sent to a server that asks for it)",
    )
    add_bundle_option(group)
    group.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="time allowed for each call (default %(default)g)",
    )


def add_bundle_option(group: argparse._ArgumentGroup) -> None:
    """--bundle, for a command whose private server serves it."""
    group.add_argument(
        "--bundle",
        metavar="DIR",
        help="start a private server with this bundle; by default TIMBREL_BUNDLE, else the one that ships",
    )


def client_of(args: argparse.Namespace) -> Client:
    """The client that these options ask for."""
    return Client(args.server, timeout=args.timeout, bundle=args.bundle, progress=True)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """For commands that answer something: with --json, standard output is one JSON object, no more."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def print_json(facts: Any) -> None:
    """What --json prints."""
    print(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
