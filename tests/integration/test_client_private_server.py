"""The server that a client starts for itself."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from waiting import is_running, wait_for, wait_until_gone

import timbrel
from timbrel.private_server import PrivateServer
from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))


def test_a_client_without_an_address_starts_a_server_that_ends_with_it(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_BUNDLE", str(tiny_bundle))
    with timbrel.Client() as client:
        note = client.generate("Violin", seconds=0.2, seed=1)
        private = client._connection.private_server
        assert private is not None and is_running(private.pid)
        assert private.address.startswith("127.0.0.1:")
    assert not is_running(private.pid)
    assert len(note.audio) > 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups like these")
def test_a_terminal_s_ctrl_c_does_not_reach_a_server_of_the_same_session(tiny_bundle: Path) -> None:
    """Linux schedules sessions apart: live notes were let go up to 65 ms late."""
    with timbrel.Client(bundle=tiny_bundle) as client:
        client.model()
        private = client._connection.private_server
        assert private is not None
        assert os.getsid(private.pid) == os.getsid(0)
        assert os.getpgid(private.pid) == private.pid != os.getpgid(0)


def test_nor_does_that_of_a_console_on_windows(monkeypatch: pytest.MonkeyPatch, tiny_bundle: Path) -> None:
    asked: dict[str, Any] = {}

    def start(command: list[str], **options: Any) -> None:
        asked.update(options)
        raise OSError("not here")

    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 512, raising=False)
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(OSError, match="not here"):
        PrivateServer(tiny_bundle)
    assert asked["creationflags"] == 512


def test_a_server_ends_with_a_client_that_nobody_closes(tiny_bundle: Path) -> None:
    client = timbrel.Client(bundle=tiny_bundle)
    client.model()
    private = client._connection.private_server
    assert private is not None
    pid = private.pid
    del client, private
    gc.collect()
    wait_until_gone(pid)


def test_what_a_program_does_at_its_end_may_ask_its_server(tiny_bundle: Path) -> None:
    script = (
        "import atexit, sys, timbrel\n"
        "atexit.register(lambda: print(client.generate('Violin', seconds=0.2).seconds))\n"
        "client = timbrel.Client(bundle=sys.argv[1])\n"
        "client.prepare()\n"
    )
    command = [sys.executable, "-c", script, str(tiny_bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "0.2\n", done.stderr


def test_strangers_are_turned_away(tiny_bundle: Path) -> None:
    with PrivateServer(tiny_bundle) as server:
        with timbrel.Client(server.address) as client, pytest.raises(timbrel.AuthenticationError):
            client.model()
        with (
            timbrel.Client(server.address, token="guess") as client,
            pytest.raises(timbrel.AuthenticationError),
        ):
            client.model()


def test_a_client_that_is_killed_takes_its_server_along(tiny_bundle: Path) -> None:
    script = (
        "import sys, time, timbrel.private_server as private;"
        "print(private.PrivateServer(sys.argv[1]).pid, flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tiny_bundle)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        assert is_running(pid)
        client.send_signal(signal.SIGKILL)
    wait_until_gone(pid)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_so_does_one_whose_forked_child_lives_on(tiny_bundle: Path) -> None:
    script = (
        "import os, signal, sys, time, timbrel.private_server as private;"
        "server = private.PrivateServer(sys.argv[1]);"
        "child = os.fork() or time.sleep(60);"
        "print(server.pid, child, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tiny_bundle)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        server, child = map(int, client.stdout.readline().split())
    try:
        wait_until_gone(server)
        assert is_running(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_modules_of_the_current_folder_are_none_of_the_server_s(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    with PrivateServer(tiny_bundle) as server:
        assert is_running(server.pid)


def test_a_bundle_s_name_may_be_told_in_other_letters_than_ours(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONIOENCODING is for what a program says, and not for what it reads of others."""
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    manifest = load_manifest(tmp_path / "bundle" / MANIFEST)
    manifest.name = "Café"
    save_manifest(manifest, tmp_path / "bundle" / MANIFEST)
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    with timbrel.Client(bundle=tmp_path / "bundle") as client:
        assert client.model().name == "Café"


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")  # as on Windows, of what is no console
    missing = tmp_path / "Jürgens-bundle"
    with (
        pytest.raises(timbrel.UnavailableError, match="Jürgens-bundle") as caught,
        timbrel.Client(bundle=missing),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_without_a_temporary_folder_the_variable_is_named(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "away"))
    with pytest.raises(timbrel.UnavailableError, match=r"no file for its log .* set TMPDIR to a folder"):
        PrivateServer(tiny_bundle)


def test_without_the_server_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(timbrel.MissingExtraError, match=r"timbrel\[cpu,server\]"), timbrel.Client():
        pass


def test_a_server_that_has_died_is_told_as_one(tiny_bundle: Path) -> None:
    """Nobody knows the address that it had."""
    with timbrel.Client(bundle=tiny_bundle) as client:
        client.prepare()
        private = client._connection.private_server
        assert private is not None and private.fate() is None
        private._process.kill()
        private._process.wait()
        for ask in (
            lambda: client.generate("Violin"),
            lambda: list(client.stream("Violin")),
            lambda: list(client.generate_many([timbrel.NoteRequest("Violin")])),
            lambda: list(client.play().note_on("Violin")),
        ):
            with pytest.raises(
                timbrel.UnavailableError,
                match=r"^the private server has ended \(exit status -9\); another Client",
            ):
                ask()


def test_calls_leave_no_lines_that_nobody_can_read(tiny_bundle: Path) -> None:
    """A program that asks for days would fill the disk by them."""
    with PrivateServer(tiny_bundle) as server:
        with timbrel.Client(server.address, server.token) as client:
            client.generate("Violin", seconds=0.2)
        assert os.fstat(server._log.fileno()).st_size == 0


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", "")])
def test_a_program_that_is_no_interpreter_is_not_started_again_for_a_server(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """PyInstaller's are their own `sys.executable`: each would start the next."""
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(timbrel.UnavailableError, match=r"no Python interpreter.*TIMBREL_SERVER"):
        PrivateServer()


@pytest.mark.parametrize("module", ["grpc_health", "onnxruntime"])
def test_without_what_the_server_needs_the_extra_is_named(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    told = rf"{module} is not installed.*timbrel\[cpu"
    with pytest.raises(timbrel.TimbrelError, match=told), timbrel.Client(bundle=tiny_bundle):
        pass


def test_importing_timbrel_needs_neither_runtime_nor_server(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('onnxruntime', 'timbrel_server', 'grpc_health', 'matplotlib', 'swift_f0', 'torch'):\n"
        "    sys.modules[name] = None\n"
        "import timbrel, timbrel.cli.render, timbrel.cli.info, timbrel.cli.demo\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[PrivateServer]:
    """Every server that an AsyncClient has started."""
    servers: list[PrivateServer] = []

    class Told(PrivateServer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            servers.append(self)

    monkeypatch.setattr("timbrel.aio.connection.PrivateServer", Told)
    return servers


def test_an_event_loop_that_ends_meanwhile_leaves_no_server(
    tiny_bundle: Path, started: list[PrivateServer]
) -> None:
    async def main() -> None:
        asking = asyncio.create_task(timbrel.AsyncClient(bundle=tiny_bundle).model())
        await asyncio.sleep(0.1)
        assert not asking.done()  # and asyncio.run cancels it

    asyncio.run(main())
    wait_for(lambda: started, "the server, which was not to be stopped")
    wait_until_gone(started[0].pid)


def test_a_client_that_is_closed_meanwhile_leaves_no_server(
    tiny_bundle: Path, started: list[PrivateServer]
) -> None:
    async def main() -> None:
        client = timbrel.AsyncClient(bundle=tiny_bundle)
        asking = asyncio.create_task(client.model())
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises((RuntimeError, timbrel.TimbrelError)):
            await asking

    asyncio.run(main())
    wait_until_gone(started[0].pid)
