"""Every example in the docstrings of the public names runs, on a real server, and those in the READMEs."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

import timbrel
import timbrel.library

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

NAMES = sorted(timbrel.__all__)


@pytest.fixture(scope="module")
def client(server_address: str) -> Iterator[timbrel.Client]:
    with timbrel.Client(server_address) as opened:
        yield opened


@pytest.fixture(autouse=True)
def world(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples take for granted: a server, and a folder to write to."""
    monkeypatch.setenv("TIMBREL_SERVER", server_address)
    monkeypatch.chdir(tmp_path)


def own_examples(name: str) -> list[doctest.DocTest]:
    """The tests in the docstrings of this name and of its members, by `timbrel.NAME` or deeper."""
    thing = getattr(timbrel, name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        test
        for test in finder.find(thing, f"timbrel.{name}", module=inspect.getmodule(thing))
        if test.examples
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of(name: str, client: timbrel.Client) -> None:
    tests = own_examples(name)
    assert tests, f"timbrel.{name} has no example"
    for test in tests:
        modules = {"asyncio": asyncio, "io": io, "np": np, "soundfile": soundfile, "timbrel": timbrel}
        test.globs = {**modules, "client": client}
        said: list[str] = []
        result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
        assert result.failed == 0, "".join(said)


def test_the_example_of_libraries(client: timbrel.Client) -> None:
    given = {**vars(timbrel.library), "client": client}
    test = doctest.DocTestParser().get_doctest(timbrel.library.__doc__ or "", given, "library", None, None)
    said: list[str] = []
    assert doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("readme", ["README.md", "clients/README.md"])
def test_the_example_in(readme: str) -> None:
    lines = (Path(__file__).parents[2] / readme).read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip() == "import timbrel")
    indent = lines[first].removesuffix("import timbrel")
    block = itertools.takewhile(lambda line: line.startswith(indent) or not line, lines[first:])
    example = itertools.takewhile(lambda line: line != "```", block)
    code = compile(textwrap.dedent("\n".join(example)), readme, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    sound = np.sin(np.arange(44_100, dtype=np.float32) / 20)
    given = {"audio": sound, "loudspeaker": io.BytesIO(), "requests": [timbrel.NoteRequest("Violin")] * 2}
    if (rest := eval(code, given)) is not None:  # it awaits
        asyncio.run(rest)
