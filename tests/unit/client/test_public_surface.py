"""What `import timbrel` offers, name by name: a change here is a change for everyone who uses it.

Where the change is meant, write it down: `python tests/unit/client/test_public_surface.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timbrel

WRITTEN = Path(__file__).with_name("public_surface.txt")

FOREIGN = ("grpc", "google", "timbrel_protos")
"""Packages of which no annotation may speak."""

SPECIAL = {
    "__init__",
    "__enter__",
    "__aenter__",
    "__iter__",
    "__next__",
    "__aiter__",
    "__anext__",
    "_repr_html_",
}
"""Methods with underscores that people use all the same."""

MADE_BY = "Use `"
"""How the docstring of a constructor begins that is not the caller's to call."""


def surface() -> list[str]:
    """One line for each name, member and field."""
    lines: list[str] = []
    for name in sorted(timbrel.__all__):
        thing = getattr(timbrel, name)
        if not inspect.isclass(thing):
            lines.append(signature(name, thing))
            continue
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        lines.append(f"class {name}({bases})")
        lines.extend(f"    {line}" for line in sorted(members(thing)))
    return lines


def members(kind: type) -> Iterator[str]:
    """The public members that a class brings itself, as one would write them down."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, annotation in inspect.get_annotations(kind).items():
        if not name.startswith("_"):
            yield f"{name}: {getattr(annotation, '__forward_arg__', annotation)}"
    for name, member in vars(kind).items():
        if name in fields or (name.startswith("_") and name not in SPECIAL):
            continue
        if name == "__init__" and (dataclasses.is_dataclass(kind) or is_internal(member)):
            continue
        if isinstance(member, classmethod):
            yield f"classmethod {signature(name, member.__func__)}"
        elif inspect.isfunction(member):
            for function in typing.get_overloads(member) or [member]:
                yield signature(name, function)
        elif isinstance(member, property):
            yield f"property {signature(name, member.fget)}"
        elif hasattr(member, "func"):  # a cached property
            yield f"property {signature(name, member.func)}"


def signature(name: str, function: Any) -> str:
    """As one would write it: annotations without the quotes of their postponed evaluation."""
    written = re.sub(r"""(: |-> )(['"])(.*?)\2""", r"\1\3", str(inspect.signature(function)))
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}{name}{written}"


def is_internal(constructor: Any) -> bool:
    return (inspect.getdoc(constructor) or "").startswith(MADE_BY)


def functions(name: str) -> Iterator[tuple[str, Any]]:
    """Every public function of a public name: the name itself, or its methods and properties."""
    thing = getattr(timbrel, name)
    if not inspect.isclass(thing):
        yield name, thing
        return
    for label, member in vars(thing).items():
        function = (
            getattr(member, "__func__", None)
            or getattr(member, "fget", None)
            or getattr(member, "func", None)
            or member
        )
        if inspect.isfunction(function) and not label.startswith("_"):
            yield f"{name}.{label}", function


def parts(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from parts(part)


def test_the_surface_is_what_was_written_down() -> None:
    assert surface() == WRITTEN.read_text(encoding="utf-8").splitlines(), __doc__


@pytest.mark.parametrize("name", sorted(timbrel.__all__))
def test_no_annotation_speaks_of_grpc_or_protobuf(name: str) -> None:
    annotated = [typing.get_type_hints(function) for _, function in functions(name)]
    thing = getattr(timbrel, name)
    if inspect.isclass(thing):
        public = {key: hint for key, hint in typing.get_type_hints(thing).items() if not key.startswith("_")}
        annotated.append(public)
        if not is_internal(thing.__init__):
            annotated.append(typing.get_type_hints(thing.__init__))
    for hints in annotated:
        for hint in hints.values():
            homes = {getattr(part, "__module__", None) or "" for part in parts(hint)}
            assert not any(home.partition(".")[0] in FOREIGN for home in homes), (name, hints)


@pytest.mark.parametrize("name", sorted(timbrel.__all__))
def test_every_public_name_and_method_says_what_it_does(name: str) -> None:
    assert (inspect.getdoc(getattr(timbrel, name)) or "").strip(), name
    for label, function in functions(name):
        assert inspect.getdoc(function), f"{label} has no docstring"


def test_help_tells_what_every_field_is() -> None:
    """What stands below a field in the source, `help` and a notebook's `?` do not show."""
    told = {name: inspect.getdoc(getattr(timbrel, name)) or "" for name in timbrel.__all__}
    untold = [
        f"{name}.{field.name}"
        for name in timbrel.__all__
        if dataclasses.is_dataclass(kind := getattr(timbrel, name))
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_") and not re.search(rf"^    {field.name}: \S", told[name], re.M)
    ]
    assert not untold
    assert "uint16 [frames, codebooks]" in told["Note"]


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        ("generate", r"MIDI note number"),
        ("generate", r"seconds: how long"),
        ("locate", r"samples per second"),
        ("decode", r"\[samples\]"),
        ("stream", r"float32 \[samples\]"),
    ],
)
def test_units_are_told(method: str, unit: str) -> None:
    assert re.search(unit, inspect.getdoc(getattr(timbrel.Client, method)) or "")


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def arguments(kind: type) -> dict[str, list[str]]:
        methods = {name: member for name, member in vars(kind).items() if inspect.isfunction(member)}
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in methods.items()
            if not name.startswith("_") or name == "__init__"
        }

    assert arguments(timbrel.Client) == arguments(timbrel.AsyncClient)


def test_the_package_has_no_public_names_but_those_it_lists() -> None:
    modules = {name for name, thing in vars(timbrel).items() if inspect.ismodule(thing)}
    offered = {name for name in vars(timbrel) if not name.startswith("_")}
    assert offered - modules == set(timbrel.__all__) - modules
    assert sorted(timbrel.__all__) == timbrel.__all__ or set(timbrel.__all__) == offered - modules


if __name__ == "__main__":
    WRITTEN.write_text("\n".join(surface()) + "\n", encoding="utf-8")
