"""An argument parser that complains in one line and takes negative numbers as values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

_NEGATIVE_VALUE = re.compile(r"-[\d.].*")
_LONG_OPTION = re.compile(r"--[^=]+")


class Parser(argparse.ArgumentParser):
    """argparse's parser, with the layout of examples kept and errors of one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"timbrel: {' '.join(message.split())} (see {self.prog} --help)\n")

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
