"""The command line's parser, and the options that several commands have."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from timbrel.client import DEFAULT_TIMEOUT_SECONDS, Client
from timbrel_bundle import request_fields
from timbrel_bundle.errors import UNPRINTABLE, printable

_NEGATIVE_VALUE = re.compile(r"-[\d.].*")
_LONG_OPTION = re.compile(r"--[^=]+")

POWERSHELL_VARIABLE = "PSModulePath"
"""Environment variable: there where PowerShell started us, and on every Windows machine."""


class Parser(argparse.ArgumentParser):
    """argparse's parser, with the layout of examples kept and errors of one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        start, _, words = message.partition("unrecognized arguments:")
        is_in_pieces = not start and not all(word.startswith("--") for word in words.split())
        if is_in_pieces and POWERSHELL_VARIABLE in os.environ:
            message += '; PowerShell takes words apart at their commas unless they are quoted: "0.2,-0.4"'
        self.exit(2, f"timbrel: {printable(' '.join(message.split()))} (see {self.prog} --help)\n")

    def options_of_several(self) -> frozenset[str]:
        """The options that take more than one value."""
        several = [action for action in self._actions if action.nargs not in (None, 0, 1, "?")]
        return frozenset(option for action in several for option in action.option_strings)


def join_negative_values(arguments: Sequence[str], several: Collection[str] = ()) -> list[str]:
    """Writes `--timbre -0.2,0.4` as `--timbre=-0.2,0.4`, which argparse would take for two options.

    Among the values of an option that takes several, a negative one gets a blank before it instead.
    """
    joined: list[str] = []
    option = ""
    for argument in arguments:
        option = argument if argument.startswith("--") else option
        if option in several and _NEGATIVE_VALUE.fullmatch(argument):
            joined.append(f" {argument}")
        elif joined and _NEGATIVE_VALUE.fullmatch(argument) and _LONG_OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


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
        help="time allowed for each call (default %(default)g, and as much more as a note is held)",
    )


def add_bundle_option(group: argparse._ArgumentGroup) -> None:
    """--bundle, for a command whose private server serves it."""
    group.add_argument(
        "--bundle",
        metavar="DIR",
        help="start a private server with this bundle; by default TIMBREL_BUNDLE, else the one that ships",
    )


def add_number_options(
    group: argparse._ArgumentGroup, names: Iterable[str], remarks: Mapping[str, str] | None = None
) -> None:
    """Adds an option for each of these numbers of a request; `remarks` follow their help, by name."""
    for name in names:
        field = request_fields.FIELD[name]
        text = field.help + (remarks or {}).get(name, "")
        kind = parse_curve if field.curve else field.kind
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, default=field.default, help=text)


def parse_curve(text: str) -> request_fields.Cents:
    """Reads a number, or points SECONDS:VALUE with commas between. Raises argparse.ArgumentTypeError: it is
    neither."""
    try:
        if ":" not in text:
            return float(text)
        points = [tuple(map(float, point.split(":"))) for point in text.split(",")]
        return tuple((seconds, value) for seconds, value in points)
    except ValueError:
        wanted = "neither a number nor points SECONDS:CENTS with commas between"
        raise argparse.ArgumentTypeError(f"{text!r:.60} is {wanted}") from None


def add_sample_rate_option(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sample-rate", type=int, metavar="HZ", help="of the file, 8000 to 192000 (default: the bundle's)"
    )


def client_of(args: argparse.Namespace) -> Client:
    """The client that these options ask for."""
    return Client(args.server, timeout=args.timeout, bundle=args.bundle, progress=True)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """For commands that answer something: with --json, standard output is one JSON object, no more."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def print_json(facts: Any) -> None:
    """Prints the one object of --json. What a terminal would act upon is escaped, as JSON has it; where the
    output is not UTF-8, which JSON is to be, so is all that is not ASCII."""
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower() in ("utf-8", "utf8")
    if not is_utf8 or any(UNPRINTABLE.search(line) for line in text.split("\n")):
        text = json.dumps(facts, indent=2, allow_nan=False)
    print(text)
