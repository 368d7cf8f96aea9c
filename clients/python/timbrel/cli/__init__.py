"""The command `timbrel`: finds its subcommands, runs one, and says in one line what went wrong."""

from timbrel.cli.dispatch import Command, main

__all__ = ["Command", "main"]
