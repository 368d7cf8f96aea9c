"""Every command line that `--help` and the READMEs show is one that the command accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from timbrel.cli import dispatch
from timbrel.cli.options import Parser, join_negative_values

ROOT = Path(__file__).parents[3]
READMES = sorted({*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md"), *ROOT.glob("clients/*/README.md")})
NOT_ONE_COMMAND = re.compile(r"\.\.\.|[|;&<>]|\$\(|COMMAND")
"""What a shell does with a line, or a reader fills in."""
CONTINUED = r"\\\n\s*"


def command_lines(text: str) -> Iterator[list[str]]:
    """The arguments of each line that begins with `timbrel`, as a shell splits them."""
    for line in re.sub(CONTINUED, " ", text).splitlines():
        if match := re.match(r"\s*(?:[A-Z_]+=\S+ )*timbrel( .*)", line):
            words = shlex.split(re.split(r"\s{3,}|\s#", match[1].strip())[0])
            if not NOT_ONE_COMMAND.search(match[1]):
                yield words


def not_for_every_shell(text: str) -> list[str]:
    """Lines that begin with `timbrel` and have quotes that Windows's cmd.exe does not know, or commas outside
    of any, at which PowerShell takes words apart."""
    lines = [re.split(r"\s{3,}|\s#", line.strip())[0] for line in text.splitlines()]
    return [
        line
        for line in lines
        if re.match("timbrel [a-z]+ --", line) and re.search("[',]", re.sub('"[^"]*"', "", line))
    ]


def parsers(name: str) -> Iterator[Parser]:
    """A command's parser and those of its stages."""
    parser = Parser(prog=f"timbrel {name}")
    dispatch.find_commands()[name].load().configure(parser)
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            yield from action.choices.values()


def accept(words: list[str]) -> None:
    """Raises SystemExit where the command does not take these words."""
    if words[0] in ("--version", "--help") or words[-1] == "--help":
        return
    parser = next(parsers(words[0]))
    parser.parse_args(join_negative_values(words[1:], parser.options_of_several()))


@pytest.mark.parametrize("name", sorted(dispatch.find_commands()))
def test_a_helps_examples_are_accepted(name: str) -> None:
    for parser in parsers(name):
        lines = list(command_lines(parser.format_help()))
        assert lines, f"{parser.prog} --help shows no example"
        for words in lines:
            accept(words)
        assert not_for_every_shell(parser.epilog or "") == []


def test_the_list_of_commands_names_every_stage_of_training() -> None:
    train = dispatch.find_commands()["train"].load()
    named = set(re.findall(r"\w+", train.help))
    assert {parser.prog.split()[-1] for parser in parsers("train")} - {"train"} <= named


@pytest.mark.parametrize("name", ["train", "export"])
def test_what_is_trained_on_is_a_dataset_and_no_library(name: str) -> None:
    """A library is a rendered instrument: what `timbrel library` writes cannot be trained on."""
    for parser in parsers(name):
        assert "librar" not in parser.format_help().lower(), parser.prog


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_readmes_commands_are_accepted(readme: Path) -> None:
    for words in command_lines(readme.read_text()):
        if words[0] in dispatch.find_commands():  # else prose, or what is printed
            accept(words)


def test_the_commands_that_a_user_meets_first_are_for_every_shell() -> None:
    for readme in (ROOT / "README.md", ROOT / "clients" / "README.md"):
        assert not_for_every_shell(readme.read_text(encoding="utf-8")) == []
