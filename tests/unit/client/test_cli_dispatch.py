"""The command `timbrel` itself, with commands made up for the test."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

import timbrel.cli.dispatch as dispatch
from timbrel.cli import Command, main, options
from timbrel.cli.options import Parser, join_negative_values
from timbrel.errors import NotFoundError


class Echo:
    """Prints its argument, or does what the test says."""

    help = "say it again"

    def __init__(self, action: Callable[[], None] = lambda: None) -> None:
        self.action = action

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--words", default="nothing")

    def run(self, args: argparse.Namespace) -> int:
        self.action()
        print(args.words)
        return 0


def fail(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Command], None]:
    """Makes `echo` this command; `broken`, of the training package, cannot be imported."""

    def put(command: Command) -> None:
        module = ModuleType("made_up")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made_up", module)
        points = {
            "echo": EntryPoint("echo", "made_up:command", "timbrel.commands"),
            "broken": EntryPoint("broken", "timbrel_training.absent:command", "timbrel.commands"),
        }
        monkeypatch.setattr(dispatch, "find_commands", lambda: points)

    return put


def test_runs_the_command_chosen(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    assert main(["echo", "--words", "hello"]) == 0
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("pitch: bad\n  value"), "timbrel: pitch: bad value"),
        (
            FileNotFoundError(2, "No such file or directory", "a.wav"),
            "timbrel: a.wav: No such file or directory",
        ),
        (NotFoundError("no such bundle"), "timbrel: no such bundle"),
    ],
)
def test_an_error_is_one_line_and_status_2(
    install: Callable[[Command], None],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    line: str,
) -> None:
    install(Echo(fail(error)))
    assert main(["echo"]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"{line}\n"
    assert captured.out == ""


def test_a_bug_keeps_its_traceback(install: Callable[[Command], None]) -> None:
    install(Echo(fail(AttributeError("a bug"))))
    with pytest.raises(AttributeError):
        main(["echo"])


def test_tracebacks_can_be_asked_for(
    install: Callable[[Command], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_TRACEBACK", "1")
    install(Echo(fail(ValueError("bad"))))
    with pytest.raises(ValueError, match="bad"):
        main(["echo"])


def test_an_interrupt_is_quiet_and_status_130(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo(fail(KeyboardInterrupt())))
    assert main(["echo"]) == 130
    assert capsys.readouterr() == ("", "")


def test_so_is_one_while_the_commands_are_listed(
    install: Callable[[Command], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    monkeypatch.setattr(dispatch, "_help_line", lambda point: fail(KeyboardInterrupt())())
    assert main([]) == 130
    assert capsys.readouterr() == ("", "")


def test_outputs_may_be_closed(
    install: Callable[[Command], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        assert main(["echo"]) == 0
        sys.stdout.close()
    install(Echo(fail(ValueError("bad"))))
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stderr", None)
        assert main(["echo"]) == 2
        sys.stderr.close()
    assert capsys.readouterr() == ("", "")


def test_numbers_of_closed_streams_are_nowhere_s() -> None:
    look = (
        "import os; from timbrel_bundle.standard_streams import fill_closed;"
        "[os.close(n) for n in (0, 1, 2)]; fill_closed();"
        "os._exit(os.open(os.devnull, os.O_RDONLY) <= 2)"
    )
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_a_missing_extra_is_named(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    assert main(["broken"]) == 2
    assert 'pip install "timbrel[cpu,train,export]"' in capsys.readouterr().err
    install(Echo(fail(ModuleNotFoundError("No module named 'torch'", name="torch"))))
    assert main(["echo"]) == 2
    error = capsys.readouterr().err
    assert "torch is not installed" in error and error.count("\n") == 1


def test_what_cannot_be_loaded_is_not_told_as_missing(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (
        ImportError("libcudart.so.13: cannot open shared object file"),
        ImportError("cannot import name 'Lifespan' from 'starlette'", name="starlette"),
    ):
        install(Echo(fail(error)))
        assert main(["echo"]) == 2
        told = capsys.readouterr().err
        assert str(error) in told and told.count("\n") == 1
        assert "pip install" not in told and "is not installed" not in told


def test_help_lists_a_command_that_cannot_be_loaded(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Echo())
    monkeypatch.setattr(EntryPoint, "load", lambda _point: fail(ImportError("libgomp.so.1"))())
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "cannot be loaded" in capsys.readouterr().out


def test_exporting_names_all_extras_that_it_imports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is trained is loaded by the training's packages, and its graphs are run before they are written:
    who has installed `export` alone is not told to install it."""
    monkeypatch.setitem(sys.modules, "timbrel_export.bundle_folder", None)
    assert main(["export", "--timbre=none", "--out=none"]) == 2
    assert 'pip install "timbrel[cpu,train,export]"' in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["echo", "--nonsense"], ["echo", "--words"]])
def test_wrong_usage_is_one_line_and_status_2(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    install(Echo())
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("timbrel: ") and error.count("\n") == 1


def test_help_lists_every_command_even_one_that_lacks_its_extra(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "say it again" in text and "needs timbrel[cpu,train,export]" in text and "examples:" in text


def test_without_the_metadata_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatch, "entry_points", lambda **_group: ())
    for arguments in ([], ["--version"], ["render"]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert "--copy-metadata timbrel" in error and error.count("\n") == 1


def test_without_arguments_shows_the_help_and_status_2(
    install: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(Echo())
    assert main([]) == 2
    assert "say it again" in capsys.readouterr().err


def test_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("timbrel ")


def test_where_powershell_took_a_word_apart_it_is_said_how_it_keeps_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `--timbre 0.2,-0.4` it makes three words."""
    words = join_negative_values(["--timbre", "0.2", "-0.4"])
    monkeypatch.delenv("PSModulePath", raising=False)  # some machines of Linux have PowerShell, too
    for is_advised in (False, True):
        if is_advised:
            monkeypatch.setenv("PSModulePath", "C:\\modules")
        parser = Parser(prog="timbrel render")
        parser.add_argument("--timbre")
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        error = capsys.readouterr().err
        assert "unrecognized arguments: -0.4" in error and error.count("\n") == 1
        assert ("PowerShell" in error) is is_advised
        with pytest.raises(SystemExit):
            parser.parse_args(["--tembre=Violin"])
        assert "PowerShell" not in capsys.readouterr().err


def test_nothing_of_a_word_that_is_not_known_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Parser(prog="timbrel render").parse_args(["\x1b[31m\n"])
    assert capsys.readouterr().err == "timbrel: unrecognized arguments: ?[31m (see timbrel render --help)\n"


def test_negative_numbers_are_values() -> None:
    given = ["--timbre", "-0.2,0.4", "--seed", "-1", "--out", "x.wav", "--json", "-h", "--a=b", "-2"]
    joined = ["--timbre=-0.2,0.4", "--seed=-1", "--out", "x.wav", "--json", "-h", "--a=b", "-2"]
    assert join_negative_values(given) == joined


def test_options_of_several_values_take_negative_ones_too() -> None:
    parser = Parser(prog="timbrel")
    parser.add_argument("--path", nargs=3, action="append")
    parser.add_argument("--timbre", action="append")
    given = ["--path", "-0.2,0.4", "-.5,-1", "8", "--timbre", "-0.1,0", "--path", "a", "-1,0", "2"]
    args = parser.parse_args(join_negative_values(given, parser.options_of_several()))
    assert [[value.strip() for value in path] for path in args.path] == [
        ["-0.2,0.4", "-.5,-1", "8"],
        ["a", "-1,0", "2"],
    ]
    assert args.timbre == ["-0.1,0"]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_json_is_json_whatever_the_output_s_letters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON is UTF-8, a pipe on Windows is not."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    options.print_json({"file": "Jörg/笛.wav"})
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode("utf-8")) == {"file": "Jörg/笛.wav"}


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_names_that_the_output_has_no_letters_for_are_escaped(
    install: Callable[[Command], None], monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    """The latter is what Windows's pipes do with them."""
    install(Echo())
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252", errors))
    assert main(["echo", "--words", "笛.wav"]) == 0
    assert written.getvalue().decode("cp1252").split() == ["\\u7b1b.wav"]
