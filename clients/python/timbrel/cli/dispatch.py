"""Finds the subcommands of timbrel, which each package brings, and runs one, loading no other."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from typing import Protocol, cast, runtime_checkable

from timbrel.cli.options import Parser, join_negative_values
from timbrel.errors import MissingExtraError, TimbrelError
from timbrel_bundle.errors import RuntimeMissingError, printable
from timbrel_bundle.standard_streams import fill_closed

GROUP = "timbrel.commands"

EXTRAS: Mapping[str, str] = {
    "timbrel_server": "cpu,server",
    "timbrel_training": "cpu,train,export",
    "timbrel_export": "cpu,train,export",
    "timbrel.cli.demo": "cpu,server,demo",
    "timbrel.cli.explore": "explore",
    "timbrel": "cpu",
}
"""Start of a command's module -> the extras that it needs; the first that fits counts."""


@runtime_checkable
class Command(Protocol):
    """A subcommand. Structural: whoever brings one need not import this."""

    help: str
    """One line for the list of commands."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the arguments, a description and examples."""

    def run(self, args: argparse.Namespace) -> int:
        """Does the work; returns the exit status."""


def find_commands() -> dict[str, EntryPoint]:
    """Every installed subcommand, by name, in alphabetical order. None is loaded."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def import_failure(point: EntryPoint, error: ImportError) -> TimbrelError:
    """The error for an import that failed in this command: it names the extra to install, or says why what is
    installed cannot be loaded, such as a library of the system that it lacks."""
    if not isinstance(error, (ModuleNotFoundError, RuntimeMissingError)):
        return TimbrelError(f"timbrel {point.name}: something that it needs cannot be loaded: {error}")
    module = f" ({error.name} is not installed)" if error.name else ""
    extra = next((extra for start, extra in EXTRAS.items() if point.module.startswith(start)), "cpu")
    return MissingExtraError(f"timbrel {point.name}{module}", extra)


USAGE_STATUS = 2
INTERRUPTED_STATUS = 130

TRACEBACK_VARIABLE = "TIMBREL_TRACEBACK"
"""Environment variable: where it is 1, errors keep their traceback, for those who look for a bug."""

CONTINUES: Mapping[str, str] = {
    "library": "the same command goes on: no note is rendered twice",
    "train": "the same command goes on with what is done so far",
}
"""Command -> what to do after Ctrl-C, where work is kept."""

_DESCRIPTION = "Turns a point on a map of timbres and a pitch into a played note."
_EXAMPLES = """\
examples:
  timbrel demo                                            render some notes, into demo/
  timbrel render --timbre Violin --pitch 60 --out note.wav
  timbrel info                                            what is being served

`timbrel COMMAND --help` explains each.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 2 for an error of the user's, 130 where interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    fill_closed()
    # A name that the output has no letters for (a pipe's, on Windows) is no error of a note that was written.
    # Windows's own are not strict: they give back the bytes of names that could not be read, no more.
    if isinstance(sys.stdout, TextIOWrapper) and (
        sys.stdout.errors == "strict" or sys.stdout.encoding.lower() not in ("utf-8", "utf8")
    ):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _run(given)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        if given and (hint := CONTINUES.get(given[0])) is not None:
            print(f"timbrel: interrupted; {hint}", file=sys.stderr)
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        # Whoever read our output has had enough; the interpreter's last flush must not complain.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TimbrelError, ValueError, OSError, MemoryError) as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        print(f"timbrel: {_one_line(error)}", file=sys.stderr)
        return USAGE_STATUS


def _run(given: list[str]) -> int:
    commands = find_commands()
    if not commands:
        raise TimbrelError(
            "no command is found: timbrel's metadata (timbrel-VERSION.dist-info) is not on Python's path; "
            "install timbrel with pip; a program frozen by PyInstaller wants --copy-metadata timbrel"
        )
    if not given or given[0] not in commands:
        return _without_command(given, commands)
    point = commands[given[0]]
    parser = Parser(prog=f"timbrel {point.name}")
    try:
        command = cast(Command, point.load())
        command.configure(parser)
        args = parser.parse_args(join_negative_values(given[1:], parser.options_of_several()))
        return command.run(args)
    except ImportError as error:
        raise import_failure(point, error) from error


def _without_command(given: list[str], commands: Mapping[str, EntryPoint]) -> int:
    """Help, the version, or a complaint about what is no command."""
    parser = Parser(prog="timbrel", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"timbrel {version('timbrel')}")
    asks_for_help = not given or given[0] in ("-h", "--help")
    listing = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, point in commands.items():
        listing.add_parser(name, help=_help_line(point) if asks_for_help else None)
    if not given:
        parser.print_help(sys.stderr)
        return USAGE_STATUS
    parser.parse_args(given[:1])
    return 0


def _help_line(point: EntryPoint) -> str:
    try:
        return cast(Command, point.load()).help
    except ImportError as error:
        failure = import_failure(point, error)
        if isinstance(failure, MissingExtraError):
            return f"(needs timbrel[{failure.extra}])"
        return "(something that it needs cannot be loaded)"


def _one_line(error: Exception) -> str:
    """The error's message; Python's own "[Errno 2]" is left out of a system error's."""
    message = f"there is not enough memory: {error}" if isinstance(error, MemoryError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        message = f"{place}{error.strerror}"
    return printable(" ".join(message.split())) or type(error).__name__
