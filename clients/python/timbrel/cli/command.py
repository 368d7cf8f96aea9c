"""What a subcommand of `timbrel` is, and where they are found.

Each package brings its own through the entry-point group `timbrel.commands`: the name is the subcommand's,
the value "package.module:command", an object with the three members of `Command`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast, runtime_checkable

from timbrel.errors import MissingExtraError

GROUP = "timbrel.commands"

EXTRAS: Mapping[str, str] = {
    "timbrel_server": "cpu,server",
    "timbrel_training": "train",
    "timbrel_export": "export",
    "timbrel.cli.demo": "cpu,server,demo",
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


def load_command(point: EntryPoint) -> Command:
    """
    Raises:
        MissingExtraError: a package that the command needs is not installed.
    """
    try:
        return cast(Command, point.load())
    except ImportError as error:
        raise missing_extra(point, error) from error


def missing_extra(point: EntryPoint, error: ImportError) -> MissingExtraError:
    """The error that names the extra to install, for an import that failed in this command."""
    module = f" ({error.name} is not installed)" if error.name else ""
    extra = next((extra for start, extra in EXTRAS.items() if point.module.startswith(start)), "cpu")
    return MissingExtraError(f"timbrel {point.name}{module}", extra)
