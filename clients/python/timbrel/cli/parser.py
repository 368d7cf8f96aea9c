"""An argument parser that complains in one line and takes negative numbers as values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
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


def join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Writes `--timbre -0.2,0.4` as `--timbre=-0.2,0.4`, which argparse would take for two options."""
    joined: list[str] = []
    for argument in arguments:
        if joined and _NEGATIVE_VALUE.fullmatch(argument) and _LONG_OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined
