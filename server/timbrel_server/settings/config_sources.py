"""A server's configuration put together: flags win over the environment, that over a TOML file, that over the
defaults."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbrel_server.settings.config import ServerConfig
from timbrel_server.settings.options import ENVIRONMENT_PREFIX, ConfigError, Option, options_of

CONFIG_VARIABLE = "TIMBREL_CONFIG"
"""Environment variable that names the TOML file, where --config does not."""

OTHERS_VARIABLES = frozenset(
    {
        *(CONFIG_VARIABLE, "TIMBREL_SERVER", "TIMBREL_CACHE", "TIMBREL_TRACEBACK", "TIMBREL_REQUIRE_ALL"),
        *("TIMBREL_CA", "TIMBREL_CERT", "TIMBREL_KEY"),
    }
)
"""Variables of the same prefix that are no options of the server."""

SIMILARITY = 0.75
"""From which on a variable's name is taken for a misspelt one of ours: an environment has other owners."""

HIDDEN = "(hidden)"


@dataclass(frozen=True)
class SourcedConfig:
    """A configuration, and where each option that is not a default comes from."""

    config: ServerConfig
    sources: Mapping[str, str]
    """By field."""

    def lines(self) -> Sequence[str]:
        """`key = value (source)`, one an option, secrets hidden."""
        return [
            f"{option.key} = {_shown(option, getattr(self.config, option.field))}"
            f" ({self.sources.get(option.field, 'default')})"
            for option in options_of(ServerConfig)
        ]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --config, and a flag for each option that is no secret. Those not given are absent when parsed."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of options")
    for option in options_of(ServerConfig):
        if option.secret:
            continue
        settings: dict[str, Any] = {"dest": option.field, "default": argparse.SUPPRESS, "help": _help(option)}
        if option.is_switch:
            parser.add_argument(option.flag, action="store_true", **settings)
        else:
            action = "append" if option.repeats else "store"
            name = option.metavar or option.key.upper()
            parser.add_argument(option.flag, action=action, metavar=name, **settings)


def gather(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> SourcedConfig:
    """
    Args:
        args: what a parser with `add_flags` found.

    Raises:
        ConfigError: an option is unknown or makes no sense.
        OSError: the file cannot be read.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    file = args.config or _path(environment.get(CONFIG_VARIABLE))
    layers = [_from_environment(environment), _from_flags(args)]
    if file is not None:
        layers.insert(0, _from_file(file))
    for found, named in layers:
        values.update(found)
        sources.update(named)
    return SourcedConfig(ServerConfig(**values), sources)


_Layer = tuple[dict[str, Any], dict[str, str]]  # values and sources, by field


def _from_file(file: Path) -> _Layer:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a TOML file: {error}") from None
    by_key = {option.key: option for option in options_of(ServerConfig)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in by_key:
            raise ConfigError(f"{file}: unknown option {key!r}{_nearest(key, by_key)}")
        option = by_key[key]
        values[option.field] = _read_toml(option, value, f"{file}: {key}", file.parent)
    return values, {field: str(file) for field in values}


def _read_toml(option: Option, value: Any, place: str, folder: Path) -> Any:
    """Relative paths are the file's neighbours."""
    if not option.repeats:
        return _beside(_read(option, _toml_text(value, place), place), folder)
    items = value if isinstance(value, list) else [value]
    return tuple(_beside(_read(option, _toml_text(item, place), place), folder) for item in items)


def _toml_text(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{place}: expected a plain value, got {value!r}")


def _beside(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return folder / value
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "folder"):
        return dataclasses.replace(value, folder=folder / value.folder)
    return value


def _from_environment(environment: Mapping[str, str]) -> _Layer:
    by_variable = {option.variable: option for option in options_of(ServerConfig)}
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if variable in by_variable and text:
            option = by_variable[variable]
            values[option.field] = (
                tuple(_read(option, part, variable) for part in text.split(os.pathsep) if part)
                if option.repeats
                else _read(option, text, variable)
            )
        elif _is_misspelt(variable, by_variable):
            raise ConfigError(f"unknown variable {variable}{_nearest(variable, by_variable)}")
    return values, {
        option.field: variable for variable, option in by_variable.items() if option.field in values
    }


def _is_misspelt(variable: str, known: Mapping[str, Option]) -> bool:
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in known or variable in OTHERS_VARIABLES:
        return False
    own = variable.removeprefix(ENVIRONMENT_PREFIX)
    names = [name.removeprefix(ENVIRONMENT_PREFIX) for name in known]
    return bool(difflib.get_close_matches(own, names, 1, SIMILARITY))


def _from_flags(args: argparse.Namespace) -> _Layer:
    given = vars(args)
    values: dict[str, Any] = {}
    for option in options_of(ServerConfig):
        if option.field not in given:
            continue
        value = given[option.field]
        if option.is_switch:
            values[option.field] = value
        elif option.repeats:
            values[option.field] = tuple(_read(option, text, option.flag) for text in value)
        else:
            values[option.field] = _read(option, value, option.flag)
    return values, {
        option.field: option.flag for option in options_of(ServerConfig) if option.field in values
    }


def _read(option: Option, text: str, place: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        got = "" if option.secret else f", got {text!r}"
        raise ConfigError(f"{place}: {error}{got}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.4)
    return f": did you mean {near[0]}?" if near else f"; there are: {', '.join(known)}"


def _shown(option: Option, value: Any) -> str:
    if value is not None and option.secret:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else f"{value}"


def _help(option: Option) -> str:
    shown = option.default is not None and option.default != () and not option.is_switch
    return f"{option.help} (default {option.default})" if shown else option.help


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
