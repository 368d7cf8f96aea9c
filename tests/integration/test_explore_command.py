"""`timbrel explore` as a user types it: a process, its private server, and how both end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import without_posix
from certificates import Authority
from cut_proxy import CutProxy
from explorer import open_page, require_explore
from requirements_gate import require_system
from server_process import ServerProcess, server_environment
from waiting import is_running, wait_for

from timbrel.cli import main

PATIENCE_SECONDS = 60.0
READY = "explorer: "

StartServer = Callable[..., ServerProcess]


def _mind_hangups() -> None:
    """Run in the child: where the tests themselves run under `nohup`, it would ignore the signal."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class ExplorerProcess:
    """`timbrel explore` on a free port, ready when this returns."""

    def __init__(self, *options: str, program: Sequence[str] = (), **environment: str) -> None:
        """`program` is what Python is to run, in place of the command."""
        self.process = subprocess.Popen(
            [
                *(program or command()),
                "--no-browser",
                *(() if "--port" in options else ("--port", "0")),
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=server_environment(**environment),
            preexec_fn=_mind_hangups,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), self.process.communicate()
        self.url = line.removeprefix(READY).strip()

    def get(self, path: str, context: ssl.SSLContext | None = None) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECONDS, context=context) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [self.get(path)[1]]
            return wanted(found[0])

        wait_for(is_there, f"another answer of {path}", seen=lambda: found)
        return found[0]

    def end(self, number: int) -> tuple[int, str, str]:
        """Exit status, the rest of the output, and the errors."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output, errors


def command() -> list[str]:
    return [str(Path(sys.executable).with_name("timbrel")), "explore"]


def children(pid: int) -> list[int]:
    """Processes of this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found.append(int(folder.name))
    return found


@pytest.fixture(autouse=True)
def explore_extra() -> None:
    require_explore()


@pytest.fixture
def start(tiny_bundle: Path) -> Iterator[Callable[..., ExplorerProcess]]:
    started: list[ExplorerProcess] = []

    def begin(*options: str, **given: Any) -> ExplorerProcess:
        started.append(ExplorerProcess(*options, **given))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_private_server_comes_and_goes_with_the_explorer(
    start: Callable[..., ExplorerProcess], tiny_bundle: Path, number: int, status: int
) -> None:
    explorer = start("--bundle", str(tiny_bundle))
    model = explorer.get("api/model")[1]
    assert (model["server"], model["bundle"]) == ("private", str(tiny_bundle))
    (server,) = children(explorer.process.pid)

    async def while_playing() -> tuple[int, str, str]:
        origin = explorer.url.rstrip("/")
        async with open_page(f"{origin.replace('http', 'ws')}/api/play", origin) as page:
            await page.on(1, lead=0.05)
            await page.until(lambda: page.sound[1])
            ended = await asyncio.to_thread(explorer.end, number)
            await page.socket.wait_closed()
            return ended

    ended, output, errors = asyncio.run(while_playing())
    assert (ended, output) == (status, "")
    assert "Traceback" not in errors and "timbrel" not in errors
    assert not is_running(server)


def test_where_an_event_loop_takes_no_signals_ctrl_c_ends_it_in_order(
    start: Callable[..., ExplorerProcess], start_server: StartServer
) -> None:
    """As on Windows."""
    program = (sys.executable, without_posix.__file__, "timbrel", "explore")
    explorer = start("--server", start_server().address, program=program)
    assert explorer.get("api/model")[0] == 200
    assert explorer.end(signal.SIGINT) == (130, "", "")


def test_a_terminal_that_is_closed_leaves_nothing_behind(
    start: Callable[..., ExplorerProcess], tiny_bundle: Path, tmp_path: Path
) -> None:
    explorer = start("--bundle", str(tiny_bundle), TMPDIR=str(tmp_path))
    (server,) = children(explorer.process.pid)
    assert list(tmp_path.glob("timbrel-explore-*"))
    assert explorer.end(signal.SIGHUP)[0] == 0
    assert not is_running(server)
    assert not list(tmp_path.glob("timbrel-*"))


def test_a_private_server_that_dies_is_started_again(
    start: Callable[..., ExplorerProcess], tiny_bundle: Path
) -> None:
    explorer = start(TIMBREL_BUNDLE=str(tiny_bundle))
    (server,) = children(explorer.process.pid)

    async def play_on() -> None:
        origin = explorer.url.rstrip("/")
        async with open_page(f"{origin.replace('http', 'ws')}/api/play", origin) as page:
            await page.told("hello")
            os.kill(server, signal.SIGKILL)
            await page.told("server", state="away")
            await page.told("server", state="back")
            await page.on(1, live=False, seconds=0.2)
            await page.told("end", id=1)

    asyncio.run(asyncio.wait_for(play_on(), PATIENCE_SECONDS))
    assert children(explorer.process.pid) != [server]
    assert explorer.end(signal.SIGTERM)[0] == 0


def test_a_server_that_is_not_there_yet_is_waited_for(
    start: Callable[..., ExplorerProcess], start_server: StartServer
) -> None:
    with CutProxy("127.0.0.1:9") as proxy:  # a port that were only free now could be another's by then
        proxy.go_down()
        explorer = start("--server", proxy.address, TIMBREL_TOKEN="open-sesame")
        status, told = explorer.get("api/model")
        assert (status, told["error"]["code"]) == (503, "unavailable")
        proxy.target = start_server(TIMBREL_TOKEN="open-sesame").address
        proxy.come_up()
        explorer.until("api/health", lambda told: told["server"] == "serving")
        assert explorer.get("api/model")[1]["server"] == proxy.address
        status, _, errors = explorer.end(signal.SIGTERM)
    assert status == 0 and "the explorer waits for it" in errors and len(errors.splitlines()) == 1


def test_what_cannot_work_is_said_in_one_line(
    start_server: StartServer,
    tmp_path: Path,
    tiny_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)

    def refused(*options: str) -> str:
        """The one line that these options are refused with."""
        assert main(["explore", "--no-browser", *options]) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert captured.out == ""
        return line

    server = ("--server", "127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused(*server, "--port", port) == (
            f"timbrel: port: {port} is in use; choose another by --port, or any free one by --port 0"
        )
    assert "port: 70000 is out of range" in refused("--port", "70000")
    assert "host: 'no such host' is no name" in refused(*server, "--host", "no such host", "--port", "0")
    assert "192.0.2.1 is no address of this machine" in refused(*server, "--host", "192.0.2.1", "--port", "0")
    for name in ("https://music.example", "music.example:443", "*", ""):
        assert f"allow-host: {name!r} is no host's name alone" in refused(*server, "--allow-host", name)
    assert "keyfile: goes with a certificate" in refused(*server, "--keyfile", "key.pem")
    assert f"certfile: {tmp_path}/no.pem: No such file" in refused(
        *server, "--certfile", f"{tmp_path}/no.pem"
    )
    (tmp_path / "bad.pem").write_text("no certificate")
    assert "make no certificate" in refused(*server, "--certfile", f"{tmp_path}/bad.pem")
    pair = Authority(tmp_path).sign("page", passphrase="sesame")
    assert "PEM files are needed, the key without a passphrase" in refused(
        *server, "--certfile", str(pair.certificate), "--keyfile", str(pair.key)
    )
    assert "bundle: the server 127.0.0.1:9 serves its own" in refused(*server, "--bundle", str(tiny_bundle))
    assert "server: " in refused("--server", "a b", "--port", "0")
    assert "the private server did not start" in refused("--bundle", str(tmp_path), "--port", "0")
    monkeypatch.setenv("TIMBREL_TOKEN", "guess")
    locked = start_server(TIMBREL_TOKEN="open-sesame")
    assert "token" in refused("--server", locked.address, "--port", "0")


def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main(["explore"]) == 2
    assert capsys.readouterr().err == (
        "timbrel: timbrel explore (starlette is not installed) needs an optional part of timbrel:"
        ' pip install "timbrel[explore]"\n'
    )


def test_https_for_the_network_by_the_readmes_commands(
    start: Callable[..., ExplorerProcess], server_address: str, tmp_path: Path
) -> None:
    require_system("openssl")
    readme = (Path(__file__).parents[2] / "clients" / "README.md").read_text(encoding="utf-8")
    certify, serve = re.findall(r"^    (openssl .*|timbrel explore --host .*)$", readme, re.MULTILINE)
    environment = {**os.environ, "ADDRESS": "127.0.0.1"}
    subprocess.run(["sh", "-ec", certify], cwd=tmp_path, env=environment, check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    options = [str(tmp_path / each) if each.endswith(".pem") else each for each in serve.split()[2:]]
    explorer = start("--server", server_address, *options)
    assert explorer.url.startswith("https://127.0.0.1:")
    assert explorer.get("api/health", context) == (200, {"bridge": "ok", "server": "serving"})

    async def play() -> None:
        origin = explorer.url.rstrip("/")
        async with open_page(f"{origin.replace('https', 'wss')}/api/play", origin, ssl=context) as page:
            await page.on(1, live=False, seconds=0.2)
            await page.told("end", id=1)

    asyncio.run(asyncio.wait_for(play(), PATIENCE_SECONDS))
    _, _, errors = explorer.end(signal.SIGTERM)
    assert "anyone on the network who reaches this port can play" in errors and "HTTPS" not in errors


def test_a_network_without_https_is_warned_of(
    start: Callable[..., ExplorerProcess], server_address: str
) -> None:
    explorer = start("--server", server_address, "--host", "0.0.0.0")
    _, _, errors = explorer.end(signal.SIGTERM)
    assert "anyone on the network" in errors and "over HTTPS only: give --certfile and --keyfile" in errors


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explore", "--help"])
    assert "timbrel explore --server studio:50051" in capsys.readouterr().out
