"""The command `timbrel`: finds its subcommands, runs one, and says in one line what went wrong."""

from timbrel.cli.command import Command
from timbrel.cli.dispatch import main

__all__ = ["Command", "main"]
