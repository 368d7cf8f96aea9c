"""Options as fields of a dataclass: each says once how it is written in a TOML file, in the environment and
on the command line. Flags win over the environment, that over the file, that over the defaults."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

ENVIRONMENT_PREFIX = "TIMBREL_"

CONFIG_VARIABLE = "TIMBREL_CONFIG"
"""Environment variable that names the TOML file, where --config does not."""

OTHERS_VARIABLES = frozenset(
    {
        *(CONFIG_VARIABLE, "TIMBREL_SERVER", "TIMBREL_CACHE", "TIMBREL_TRACEBACK", "TIMBREL_REQUIRE_ALL"),
        *("TIMBREL_CA", "TIMBREL_CERT", "TIMBREL_KEY"),
    }
)
"""Variables of the same prefix that are no options of the server."""

KUBERNETES_VARIABLE = re.compile(r"TIMBREL_(SERVICE_(HOST|PORT)|PORT_\d+_).*")
"""Kubernetes sets these, and TIMBREL_PORT, for a Service called timbrel."""

SIMILARITY = 0.75
"""From which on a variable's name is taken for a misspelt one of ours: an environment has other owners."""

HIDDEN = "(hidden)"

_Config = TypeVar("_Config")


class ConfigError(ValueError):
    """An option of the server makes no sense."""


@dataclass(frozen=True)
class Option:
    """One field of a configuration, as its sources know it."""

    field: str
    """Name of the dataclass's field."""

    key: str
    """In a TOML file; `--key-with-dashes` is its flag and TIMBREL_KEY its variable."""

    read: Callable[[str], Any]
    """From text. Raises ValueError, which says what was expected."""

    help: str
    default: Any = None
    metavar: str | None = None
    within: tuple[float, float] | None = None
    """The least number that it may be, and the greatest."""

    choices: tuple[str, ...] = ()
    """The texts that it may be; none where it may be any."""

    secret: bool = False
    """Never printed, and never taken from the command line, which everybody on the machine can read."""

    repeats: bool = False
    """Whether it is a list: its flag may be given again, its variable separates as PATH does."""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_switch(self) -> bool:
        """Whether its flag stands alone."""
        return self.read is read_switch


def option(
    default: Any,
    key: str,
    help: str,
    *,
    read: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    within: tuple[float, float] | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Declares a field of a configuration: arguments are those of `Option`. How it is read and shown, and
    whether it repeats, follows from the field's type unless said here."""
    notes = {"key": key, "help": help, "read": read, "metavar": metavar or "|".join(choices)}
    limits = {"within": within, "choices": choices, "secret": secret}
    return dataclasses.field(default=default, metadata=notes | limits)


def options_of(config: type) -> Sequence[Option]:
    """Returns the options of a configuration's dataclass, in their order."""
    hints = get_type_hints(config)
    return [_option_of(field, hints[field.name]) for field in dataclasses.fields(config) if field.metadata]


def _option_of(field: dataclasses.Field[Any], hint: Any) -> Option:
    """Reads `int | None` and `tuple[int, ...]` as int is read."""
    kinds = [kind for kind in get_args(hint) if kind not in (NoneType, Ellipsis)] or [hint]
    notes = dict(field.metadata)
    notes["read"] = notes["read"] or _READERS[kinds[0]]
    notes["metavar"] = notes["metavar"] or _METAVARS.get(kinds[0])
    return Option(field=field.name, default=field.default, repeats=get_origin(hint) is tuple, **notes)


def check_options(config: Any) -> None:
    """Raises ConfigError for the first option that is out of its range, or none of its choices."""
    for each in options_of(type(config)):
        value = getattr(config, each.field)
        for one in value if each.repeats else (value,):
            if each.within is not None and one is not None and not each.within[0] <= one <= each.within[1]:
                shown, *bounds = (f"{number:.15g}" for number in (one, *each.within))
                raise ConfigError(f"{each.key} {shown} is out of range: {'..'.join(bounds)}")
            if each.choices and one not in each.choices:
                raise ConfigError(f"{each.key} {one!r} is unknown; allowed: {', '.join(each.choices)}")


def read_whole(text: str) -> int:
    """Reads a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def read_number(text: str) -> float:
    """Reads a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def read_text(text: str) -> str:
    """Reads any text but none; NUL, which is in no address and no path, is none."""
    if not text.strip() or "\0" in text:
        raise ValueError("expected some text")
    return text.strip()


def read_path(text: str) -> Path:
    """Reads the path of a file or folder."""
    return Path(os.path.expanduser(read_text(text)))


def read_switch(text: str) -> bool:
    """Reads yes or no."""
    try:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


_READERS: Mapping[type, Callable[[str], Any]] = {
    int: read_whole,
    float: read_number,
    str: read_text,
    Path: read_path,
    bool: read_switch,
}

_METAVARS: Mapping[type, str] = {int: "N", Path: "FILE"}


def flags_of(config: Any) -> list[str]:
    """Returns the flags that make this configuration of nothing else, but for secrets."""
    flags = []
    for each in options_of(type(config)):
        value = getattr(config, each.field)
        if value == each.default or each.secret:
            continue
        if each.is_switch:
            flags.append(each.flag)
        else:
            flags += [f"{each.flag}={one}" for one in (value if each.repeats else (value,))]
    return flags


def environment_without(config: Any, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns this environment without the variables of a configuration's options, and the file they name."""
    own = {CONFIG_VARIABLE, *(each.variable for each in options_of(type(config)))}
    return {name: value for name, value in environment.items() if name not in own}


@dataclass(frozen=True)
class SourcedConfig(Generic[_Config]):
    """A configuration, and where each option that is not a default comes from."""

    config: _Config
    sources: Mapping[str, str]
    """The source by field."""

    def lines(self) -> Sequence[str]:
        """Writes `key = value (source)`, one an option, secrets hidden."""
        return [
            f"{option.key} = {_shown(option, getattr(self.config, option.field))}"
            f" ({self.sources.get(option.field, 'default')})"
            for option in options_of(type(self.config))
        ]


def add_flags(parser: argparse.ArgumentParser, config: type) -> None:
    """Adds --config, and a flag for each option that is no secret. Those not given are absent when parsed."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of options")
    for option in options_of(config):
        if option.secret:
            continue
        settings: dict[str, Any] = {"dest": option.field, "default": argparse.SUPPRESS, "help": _help(option)}
        if option.is_switch:
            parser.add_argument(option.flag, action="store_true", **settings)
        else:
            action = "append" if option.repeats else "store"
            name = option.metavar or option.key.upper()
            parser.add_argument(option.flag, action=action, metavar=name, **settings)


def gather(
    args: argparse.Namespace, config: type[_Config], environment: Mapping[str, str] = os.environ
) -> SourcedConfig[_Config]:
    """Puts a configuration together from all its sources.

    Args:
        args: what a parser with `add_flags` found.

    Raises:
        ConfigError: an option is unknown or makes no sense.
        OSError: the file cannot be read.
    """
    options = options_of(config)
    found = _from_environment(options, environment) | _from_flags(options, args)
    if file := args.config or environment.get(CONFIG_VARIABLE):
        found = _from_file(options, read_path(str(file))) | found
    values = {field: value for field, (value, _) in found.items()}
    return SourcedConfig(config(**values), {field: source for field, (_, source) in found.items()})


_Found = dict[str, tuple[Any, str]]  # values and their sources, by field


def _from_file(options: Sequence[Option], file: Path) -> _Found:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # the latter: nested thousands deep
        raise ConfigError(f"{file}: not a TOML file: {error}") from None
    by_key = {option.key: option for option in options}
    found: _Found = {}
    for key, value in table.items():
        if key not in by_key:
            raise ConfigError(f"{file}: unknown option {key!r}{_nearest(key, by_key)}")
        option = by_key[key]
        found[option.field] = (_read_toml(option, value, f"{file}: {key}", file.parent), str(file))
    return found


def _read_toml(option: Option, value: Any, place: str, folder: Path) -> Any:
    """Reads a value; relative paths are the file's neighbours."""
    if not option.repeats:
        return _read(option, _toml_text(option, value, place), place, folder)
    items = value if isinstance(value, list) else [value]
    return tuple(_read(option, _toml_text(option, item, place), place, folder) for item in items)


def _toml_text(option: Option, value: Any, place: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{place}: expected a plain value{_got(option, value)}")


def _got(option: Option, value: Any) -> str:
    return "" if option.secret else f", got {value!r}"


def _beside(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return folder / value
    return value.beside(folder) if hasattr(value, "beside") else value


def _from_environment(options: Sequence[Option], environment: Mapping[str, str]) -> _Found:
    by_variable = {option.variable: option for option in options}
    found: _Found = {}
    for variable, text in environment.items():
        if variable in by_variable and text:
            option = by_variable[variable]
            parts = [part for part in text.split(os.pathsep) if part] if option.repeats else text
            found[option.field] = (_read_all(option, parts, variable), variable)
        elif _is_misspelt(variable, by_variable):
            raise ConfigError(f"unknown variable {variable}{_nearest(variable, by_variable)}")
    return found


def _is_misspelt(variable: str, known: Mapping[str, Option]) -> bool:
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in known or variable in OTHERS_VARIABLES:
        return False
    if KUBERNETES_VARIABLE.fullmatch(variable):
        return False
    own = variable.removeprefix(ENVIRONMENT_PREFIX)
    names = [name.removeprefix(ENVIRONMENT_PREFIX) for name in known]
    return bool(difflib.get_close_matches(own, names, 1, SIMILARITY))


def _from_flags(options: Sequence[Option], args: argparse.Namespace) -> _Found:
    given = vars(args)
    return {
        option.field: (
            given[option.field] if option.is_switch else _read_all(option, given[option.field], option.flag),
            option.flag,
        )
        for option in options
        if option.field in given
    }


def _read_all(option: Option, text: str | Sequence[str], place: str) -> Any:
    """Reads each text of an option that is a list, the one of another."""
    if isinstance(text, str):
        return _read(option, text, place)
    return tuple(_read(option, part, place) for part in text)


def _read(option: Option, text: str, place: str, folder: Path = Path()) -> Any:
    """Reads a value that is written in a folder: by default the one where the command was given."""
    try:
        return _beside(option.read(text), folder)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}{_got(option, text)}") from None


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
    shown = option.default is not None and not option.repeats and not option.is_switch
    return f"{option.help} (default {option.default})" if shown else option.help
