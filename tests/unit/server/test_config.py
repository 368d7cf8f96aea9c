"""Options of a server, from flags, environment and file."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from timbrel_server.cli import command
from timbrel_server.config import BundleSource, ServerConfig, default_bundle_path, is_loopback
from timbrel_server.options import ConfigError, SourcedConfig, gather, options_of


def sourced(*arguments: str, file: str | None = None, **environment: str) -> SourcedConfig:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    command.configure(parser)
    options = ["--config", file] if file is not None else []
    return gather(parser.parse_args([*options, *arguments]), ServerConfig, environment)


def config_of(*arguments: str, file: str | None = None, **environment: str) -> ServerConfig:
    return sourced(*arguments, file=file, **environment).config


def test_the_defaults() -> None:
    assert config_of() == ServerConfig()


def test_every_option_arrives(tmp_path: Path) -> None:
    options = (
        "--bundle a=first --bundle second --host ::1 --port 7 --provider cpu --precision int8 --fast"
        " --device 1 --device 3"
        " --slots 3 --threads 2 --queue 9 --grace 1.5 --stall 4 --failure-grace 0 --token-file tokens"
        " --allow-anonymous --insecure --tls-cert c --tls-key k --client-ca a --max-message-bytes 2048"
        " --queue-frames 900 --max-connections 5 --max-streams 7 --max-in-flight 8 --max-batch 6"
        " --max-seconds 1.5 --otlp-endpoint http://[::1]:4317"
        " --metrics-host ::1 --metrics-port 0 --log-format json --log-level debug"
        " --exit-with-parent"
    )
    assert config_of(*options.split()) == ServerConfig(
        bundles=(BundleSource(Path("first"), "a"), BundleSource(Path("second"))),
        host="::1",
        port=7,
        provider="cpu",
        precision="int8",
        fast=True,
        devices=(1, 3),
        n_slots=3,
        n_threads=2,
        queue_capacity=9,
        grace_seconds=1.5,
        stall_seconds=4.0,
        failure_grace_seconds=0.0,
        token_file=Path("tokens"),
        allow_anonymous=True,
        insecure=True,
        tls_certificate=Path("c"),
        tls_key=Path("k"),
        client_authority=Path("a"),
        max_message_bytes=2048,
        max_streams=7,
        queue_frames=900,
        max_connections=5,
        max_in_flight=8,
        max_batch=6,
        max_seconds=1.5,
        otlp_endpoint="http://[::1]:4317",
        metrics_host="::1",
        metrics_port=0,
        log_format="json",
        log_level="debug",
        exit_with_parent=True,
    )


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('slots = 1\nthreads = 1\nqueue = 1\nfast = true\nbundle = ["a=x", "/y"]\n')
    made = sourced(
        "--slots", "3", file=str(file), TIMBREL_SLOTS="2", TIMBREL_THREADS="2", TIMBREL_FAST="false"
    )
    config = made.config
    assert (config.n_slots, config.n_threads, config.queue_capacity, config.fast) == (3, 2, 1, False)
    assert config.bundles == (BundleSource(tmp_path / "x", "a"), BundleSource(Path("/y")))
    assert "slots = 3 (--slots)" in made.lines()
    assert "threads = 2 (TIMBREL_THREADS)" in made.lines()
    assert f"queue = 1 ({file})" in made.lines()
    assert "port = 50051 (default)" in made.lines()


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("port = 9")
    assert config_of(TIMBREL_CONFIG=str(tmp_path / "serve.toml")).port == 9


def test_the_file_may_be_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "serve.toml").write_text("port = 9")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_of("--config=~/serve.toml").port == 9, "no shell has expanded it"
    assert config_of(TIMBREL_CONFIG="~/serve.toml").port == 9


def test_several_bundles_from_the_environment() -> None:
    assert config_of(TIMBREL_BUNDLE="a=/x:/y").bundles == (
        BundleSource(Path("/x"), "a"),
        BundleSource(Path("/y")),
    )
    parser = argparse.ArgumentParser()
    command.configure(parser)
    assert "TIMBREL_BUNDLE=piano=DIR:organ=DIR" in parser.format_help()


def test_the_bundle_that_ships_is_called_default_unless_a_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert config_of("--bundle", "own=default").bundles == (BundleSource(default_bundle_path(), "own"),)
    (tmp_path / "default").mkdir()
    assert config_of("--bundle", "default").bundles == (BundleSource(Path("default")),)


def test_default_in_a_file_is_the_folder_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "etc" / "serve.toml"
    file.parent.mkdir()
    file.write_text('bundle = "own=default"')
    (tmp_path / "default").mkdir()
    monkeypatch.chdir(tmp_path)
    assert config_of(file=str(file)).bundles == (BundleSource(default_bundle_path(), "own"),)
    (file.parent / "default").mkdir()
    assert config_of(file=str(file)).bundles == (BundleSource(file.parent / "default", "own"),)


def test_the_home_of_nobody_is_a_path_as_it_stands() -> None:
    config = config_of("--bundle", "~nobody-here/piano", "--token-file", "~nobody-here/tokens")
    assert config.bundles[0].folder == Path("~nobody-here/piano")
    assert config.token_file == Path("~nobody-here/tokens")


def test_a_secret_is_never_shown_and_has_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    made = sourced(TIMBREL_TOKEN="from-the-environment")
    assert made.config.token == "from-the-environment"
    assert not any("from-the-environment" in line for line in made.lines())
    with pytest.raises(SystemExit):
        config_of("--token", "secret")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("seven77", "8 characters at least, none of them blank"),
        ("two words", "none of them blank"),
        ("two\nlines-of-it", "none of them blank"),
        ("pässwort-of-ann", "ASCII letters, digits and signs only"),
        ("escape-\x1b-of-ann", "ASCII letters, digits and signs only"),
    ],
)
def test_a_token_that_a_file_may_not_hold_is_refused_and_not_repeated(token: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        sourced(TIMBREL_TOKEN=token)
    assert token not in str(caught.value)


def test_a_password_in_the_collectors_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        config_of("--otlp-endpoint", "http://me:sesame@collector:4317")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("slot = 3", ["slot", "did you mean slots?"]),
        ("tls-cert = 'x'", ["did you mean tls_cert?"]),
        ("slots = 'many'", ["slots", "whole number", "many"]),
        ("slots = [1]", ["slots", "plain value"]),
        ("fast = 3", ["fast", "true or false"]),
        ("slots == 3", ["not a TOML file"]),
        (f"slots = {'9' * 5000}", ["not a TOML file", "5000 digits"]),
        (f"slots = {'[' * 5000}", ["not a TOML file"]),
        ("token_file = 'a\\u0000b'".replace("'", '"'), ["token_file", "some text"]),
        ("zzz = 3", ["there are:", "slots"]),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, content: str, words: list[str]) -> None:
    (tmp_path / "serve.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_of(file=str(tmp_path / "serve.toml"))
    message = str(caught.value)
    assert "serve.toml" in message
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("slots = 3", encoding="utf-8-sig")
    assert config_of(file=str(tmp_path / "serve.toml")).n_slots == 3


def test_a_token_that_is_no_text_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text('token = ["sesame-sesame"]')
    with pytest.raises(ConfigError, match="token: expected a plain value") as caught:
        config_of(file=str(tmp_path / "serve.toml"))
    assert "sesame" not in str(caught.value)


def test_no_device_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("device = []")
    with pytest.raises(ConfigError, match="device names none: leave it out"):
        config_of(file=str(tmp_path / "serve.toml"))
    with pytest.raises(ConfigError, match="device names none: leave it out"):
        config_of(TIMBREL_DEVICE=":")


@pytest.mark.parametrize("variable", ["TIMBREL_PORT", "TIMBREL_METRICS_PORT"])
def test_what_kubernetes_sets_for_a_service_of_this_name_is_told_by_its_name(variable: str) -> None:
    others = {
        "TIMBREL_SERVICE_HOST": "10.0.0.1",
        "TIMBREL_SERVICE_PORT": "50051",
        "TIMBREL_SERVICE_PORT_METRICS": "9464",
        "TIMBREL_PORT_50051_TCP_PORT": "50051",
    }
    assert config_of(TIMBREL_PORT="50052", **others).port == 50052
    with pytest.raises(ConfigError, match=rf"{variable}: .*Kubernetes.*enableServiceLinks: false"):
        sourced(**{variable: "tcp://10.0.0.1:50051"}, **others)


def test_a_misspelt_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="TIMBREL_SLOT: did you mean TIMBREL_SLOTS"):
        config_of(TIMBREL_SLOT="3")


@pytest.mark.parametrize("name", ["TIMBREL_SERVER", "TIMBREL_CACHE", "TIMBREL_PORT_50051_TCP_PROTO"])
def test_variables_of_others_are_let_be(name: str) -> None:
    assert config_of(**{name: "x"}) == ServerConfig()


def test_every_option_says_what_it_is() -> None:
    assert all(option.help for option in options_of(ServerConfig))
    keys = [option.key for option in options_of(ServerConfig)]
    assert len(keys) == len(set(keys)) == len(ServerConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--device", "-1"),
        ("--slots", "0"),
        ("--threads", "-1"),
        ("--queue", "0"),
        ("--grace", "-1"),
        ("--grace", "nan"),
        ("--stall", "0"),
        ("--max-message-bytes", "1"),
        ("--max-streams", "0"),
        ("--caller-share", "0"),
        ("--caller-share", "1.1"),
        ("--max-calls", "0"),
        ("--max-notes", "0"),
        ("--max-audio-bytes", "1000"),
        ("--max-seconds", "nan"),
        ("--otlp-endpoint", "localhost:4317"),
        ("--metrics-port", "65536"),
        ("--precision", "fp8"),
        ("--log-format", "xml"),
        ("--log-level", "loud"),
    ],
)
def test_values_out_of_range(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=option.strip("-").replace("-", "_")):
        config_of(option, value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--host unix:/run/timbrel.sock", ["no URL and no Unix socket", "127.0.0.1"]),
        ("--host 0.0.0.0", ["--token-file", "--client-ca", "--allow-anonymous"]),
        ("--host 0.0.0.0 --token-file t", ["--tls-cert", "--insecure"]),
        ("--tls-cert c", ["tls_key"]),
        ("--client-ca a", ["tls_cert"]),
        ("--bundle a=x --bundle a=y", ["'a'"]),
        ("--device 1 --device 1", ["device 1, 1", "once"]),
    ],
)
def test_options_that_do_not_go_together(options: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(*options.split())
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "options",
    [
        "--host 0.0.0.0 --allow-anonymous",
        "--host 0.0.0.0 --token-file t --insecure",
        "--host 0.0.0.0 --token-file t --tls-cert c --tls-key k",
        "--host 0.0.0.0 --client-ca a --tls-cert c --tls-key k",
        "--host localhost --token-file t",
    ],
)
def test_options_that_do(options: str) -> None:
    assert config_of(*options.split())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("[::]", False),
        ("*", False),
        ("192.168.0.1", False),
        ("example.org", False),
    ],
)
def test_which_hosts_are_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_bundle_ships() -> None:
    assert (default_bundle_path() / "manifest.json").is_file()


@pytest.mark.parametrize("option", ["--processes=2", "--reuse-port"])
def test_where_no_port_can_be_shared_several_processes_are_refused(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """As on Windows."""
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(ConfigError, match="no processes share a port: leave processes"):
        config_of(option)
    assert config_of().n_processes == 1
