"""Options of a server."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from timbrel_server.cli import command, config_from_args
from timbrel_server.config import ConfigError, ServerConfig


def config_of(*arguments: str) -> ServerConfig:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return config_from_args(parser.parse_args(["--bundle", "folder", *arguments]))


def test_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIMBREL_TOKEN", raising=False)
    assert config_of() == ServerConfig(bundle=Path("folder"))


def test_every_option_arrives(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    options = (
        "--host ::1 --port 7 --provider cpu --slots 3 --threads 2 --queue 9 --grace 1.5 --exit-with-parent"
    )
    assert config_of(*options.split(), "--token-file", str(token)) == ServerConfig(
        bundle=Path("folder"),
        host="::1",
        port=7,
        provider="cpu",
        n_slots=3,
        n_threads=2,
        queue_capacity=9,
        grace_seconds=1.5,
        token="secret",
        exit_with_parent=True,
    )


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMBREL_TOKEN", "from the environment")
    assert config_of().token == "from the environment"


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="empty"):
        config_of("--token-file", str(tmp_path / "token"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--slots", "0"),
        ("--threads", "-1"),
        ("--queue", "0"),
        ("--grace", "-1"),
        ("--grace", "nan"),
        ("--host", ""),
    ],
)
def test_what_makes_no_sense_is_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=option.strip("-")):
        config_of(f"{option}={value}")
