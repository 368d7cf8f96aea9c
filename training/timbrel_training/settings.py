"""Turns tables (of a TOML file) into frozen dataclasses, with errors that name the field."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from timbrel_training.errors import ConfigError

T = TypeVar("T")
Table = dict[str, Any]

MOST_WHOLE = 2**64
"""No whole number is larger; seeds are nearly as large."""

MOST_SHOWN = 100
"""Characters of a value, in messages."""


def build(
    cls: type[T], table: Mapping[str, Any], where: str = "", types: Mapping[str, type[Any]] | None = None
) -> T:
    """Makes an instance of the dataclass `cls` from a table as tomllib reads it; missing fields keep their
    defaults.

    Its fields are numbers, strings, booleans, tuples of those, literals, and dataclasses; `types` are the
    classes of those annotated as Any. `where` is the table's dotted name, for messages. Raises ConfigError:
    an unknown field, or a value that is not allowed.
    """
    hints = {**typing.get_type_hints(cls), **(types or {})}
    names = [field.name for field in dataclasses.fields(typing.cast(Any, cls)) if field.init]
    values = {}
    for key, value in table.items():
        dotted = f"{where}.{key}" if where else key
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
            raise ConfigError(f"{dotted}: no such field; {hint}")
        values[key] = _convert(hints[key], value, dotted)
    try:
        return cls(**values)
    except ValueError as error:  # of the section's own checks, which begin with the field's name, if any
        message = str(error)
        if not where or message.startswith(f"{where}."):
            raise
        of_field = message.split(":")[0].split()[0] in names
        raise ConfigError(f"{where}{'.' if of_field else ': '}{message}") from None


def parse_toml(text: str) -> Table:
    """Returns a TOML text as a table. Raises ConfigError: it is none, or is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except ValueError as error:  # also of a number of thousands of digits
        raise ConfigError(str(error)) from error


def override(table: Table, assignment: str) -> None:
    """Sets `section.field=value` in a table, in place. The value is TOML, or else a plain string. Raises
    ConfigError: not of that form."""
    path, equals, text = assignment.partition("=")
    *sections, name = path.strip().split(".")
    if not equals or not sections or not all([*sections, name]):
        raise ConfigError(f"{assignment!r}: expected section.field=value")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section} is a field, not a section")
    try:
        table[name] = parse_toml(f"value = {text}")["value"]
    except ConfigError:
        table[name] = text.strip()


def check_at_least(config: object, **least: float) -> None:
    """Raises ConfigError for a field of `config` below the least that it may be, by field."""
    for name, value in least.items():
        if not getattr(config, name) >= value:
            raise ConfigError(f"{name}: {getattr(config, name)}, expected at least {value}")


def check_positive(config: object, *names: str) -> None:
    """Raises ConfigError for one of these fields of `config` that is not above 0."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ConfigError(f"{name}: {getattr(config, name)}, expected more than 0")


def check_shares(config: object, *names: str) -> None:
    """Raises ConfigError for one of these fields of `config` outside 0 to 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ConfigError(f"{name}: {getattr(config, name)}, expected 0 to 1")


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Returns `value` as the type `hint`, or raises a ConfigError."""
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise ConfigError(f"{where}: a number of {len(str(value))} digits, expected 2^64 at most")
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(typing.cast(type, hint), value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [argument for argument in arguments if argument is not type(None)]
        return _convert(kinds[0], value, where)
    if origin is typing.Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{where}: {value}, expected a finite number")
        return value
    raise ConfigError(f"{where}: {value!r:.{MOST_SHOWN}}, expected {_describe(hint)}")


def _describe(hint: Any) -> str:
    if dataclasses.is_dataclass(hint):
        return "a section"
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    return getattr(hint, "__name__", str(hint))
