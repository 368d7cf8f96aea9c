"""How an option is written in a TOML file, in the environment and on the command line: once, at its field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT_PREFIX = "TIMBREL_"


class ConfigError(ValueError):
    """An option of the server makes no sense."""


@dataclass(frozen=True)
class Option:
    """What the sources of a configuration know of one of its fields."""

    field: str
    """Name of the dataclass's field."""

    key: str
    """In a TOML file; `--key-with-dashes` is its flag and TIMBREL_KEY its variable."""

    read: Callable[[str], Any]
    """From text. Raises ValueError, which says what was expected."""

    help: str
    default: Any = None
    metavar: str | None = None
    secret: bool = False
    """Never printed, and never taken from the command line, which everybody on the machine can read."""

    repeats: bool = False
    """Whether it is a list: its flag may be given again, its variable separates as PATH does."""

    @property
    def flag(self) -> str:
        """On the command line."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """In the environment."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_switch(self) -> bool:
        """Whether its flag stands alone."""
        return self.read is read_switch


def option(
    default: Any,
    key: str,
    read: Callable[[str], Any],
    help: str,
    *,
    metavar: str | None = None,
    secret: bool = False,
    repeats: bool = False,
) -> Any:
    """A field of a configuration."""
    notes = {
        "key": key,
        "read": read,
        "help": help,
        "metavar": metavar,
        "secret": secret,
        "repeats": repeats,
    }
    return dataclasses.field(default=default, metadata=notes)


def options_of(config: type) -> Sequence[Option]:
    """The options of a configuration's dataclass, in their order."""
    return [
        Option(field=field.name, default=field.default, **field.metadata)
        for field in dataclasses.fields(config)
        if field.metadata
    ]


def read_whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def read_number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def read_text(text: str) -> str:
    """Any text but none."""
    if not text.strip():
        raise ValueError("expected some text")
    return text.strip()


def read_path(text: str) -> Path:
    """A file or folder."""
    return Path(read_text(text)).expanduser()


def read_switch(text: str) -> bool:
    """Yes or no."""
    try:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError("expected true or false") from None
