"""What each of several processes is started with, how it is probed, and one that cannot be started."""

from __future__ import annotations

import argparse
import asyncio
import http.server
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for_async

from timbrel_server import processes
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.options import add_flags, flags_of, gather
from timbrel_server.processes import FAILED, Parent, share_out


def of_each(**options: Any) -> list[tuple[tuple[int, ...], int]]:
    """Devices and threads."""
    return [(each.devices, each.n_threads) for each in share_out(ServerConfig(**options))]


@pytest.mark.parametrize(
    ("n", "devices", "expected"),
    [
        (2, (0,), [(0,), (0,)]),
        (2, (0, 1), [(0,), (1,)]),
        (2, (3, 4, 5), [(3, 5), (4,)]),
        (4, (0, 1), [(0,), (1,), (0,), (1,)]),
    ],
)
def test_devices_are_shared_out(n: int, devices: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    assert [given for given, _ in of_each(n_processes=n, devices=devices)] == expected


def test_cores_are_shared_out_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores_within_quota", lambda: 8)
    assert [n for _, n in of_each(n_processes=3)] == [2, 2, 2]
    assert [n for _, n in of_each(n_processes=20)] == [1] * 20
    assert [n for _, n in of_each(n_processes=2, n_threads=5)] == [5, 5]


def test_a_configuration_is_what_its_flags_make() -> None:
    config = ServerConfig(
        bundles=(BundleSource(Path("/a b"), "piano"), BundleSource(Path("-c"))),
        port=0,
        devices=(1, 2),
        caller_share=0.125,
        token="a-secret-of-one",
        token_file=None,
        max_seconds=3.5,
        metrics_port=0,
        reuse_port=True,
    )
    flags = flags_of(config)
    assert not any("secret" in flag for flag in flags)
    parser = argparse.ArgumentParser()
    add_flags(parser, ServerConfig)
    read = gather(parser.parse_args(flags), ServerConfig, {"TIMBREL_TOKEN": "a-secret-of-one"})
    assert read.config == config
    assert flags_of(ServerConfig()) == []


@pytest.mark.parametrize("bundle", ["./a=b", "./default", "piano=./default", "piano=a=b", "piano=/srv/a"])
def test_a_bundles_folder_is_what_its_flag_makes(bundle: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, ServerConfig)
    asked = gather(parser.parse_args(["--bundle", bundle]), ServerConfig, {}).config
    assert gather(parser.parse_args(flags_of(asked)), ServerConfig, {}).config == asked


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 60.0)

    asyncio.run(bounded())


class Pages(http.server.BaseHTTPRequestHandler):
    """Says yes to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")


def test_processes_are_probed_by_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as page:
            threading.Thread(target=page.serve_forever).start()
            parent = Parent([ServerConfig()])
            process = parent._processes[0]
            process._child = await asyncio.create_subprocess_exec("true")
            process._take(f"timbrel ready on X metrics=127.0.0.1:{page.server_address[1]}\n".encode())
            parent._was_ready = True
            try:
                assert await asyncio.to_thread(lambda: (parent.is_ready, parent.is_alive)) == (True, True)
            finally:
                page.shutdown()
                await process._child.wait()

    monkeypatch.setattr(processes, "ANSWER_SECONDS", 60.0)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody listens
    run(test)


def test_one_that_is_stuck_keeps_no_probe_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ANSWER_SECONDS", 60.0)

    async def test() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as stuck,
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as page,
        ):
            threading.Thread(target=page.serve_forever).start()
            parent = Parent([ServerConfig(), ServerConfig()])
            for process, server in zip(parent._processes, (stuck, page.socket), strict=True):
                process._child = await asyncio.create_subprocess_exec("true")
                process._take(f"timbrel ready on X metrics=127.0.0.1:{server.getsockname()[1]}\n".encode())
                await process._child.wait()
            parent._was_ready = True
            try:
                assert await asyncio.wait_for(asyncio.to_thread(lambda: parent.is_ready), 20.0)
            finally:
                page.shutdown()

    run(test)


def test_processes_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=20.0)

    def says(process: processes._Process, path: str) -> str:
        together.wait()  # one by one, those that are slow keep Prometheus, or a probe, waiting too long
        return "# TYPE busy gauge\nbusy 1.0\n"

    async def test() -> None:
        monkeypatch.setattr(processes._Process, "says", says)
        parent = Parent([ServerConfig()] * 3)
        parent._was_ready = True
        for process in parent._processes:
            process.is_ready = True
        page, is_alive = await asyncio.to_thread(lambda: (parent.metrics().decode(), parent.is_alive))
        assert [line for line in page.splitlines() if not line.startswith("#")] == [
            f'busy{{process="{number}"}} 1.0' for number in range(3)
        ]
        assert is_alive

    run(test)


def lacks_processes() -> BlockingIOError:
    return BlockingIOError(11, "Resource temporarily unavailable")


def test_where_the_first_process_cannot_be_started_the_parent_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async def spawn() -> asyncio.subprocess.Process:
            raise lacks_processes()

        parent = Parent([ServerConfig(), ServerConfig()])
        for process in parent._processes:
            process._spawn = spawn  # type: ignore[method-assign]
        assert await parent.run(lambda line: None, "") == FAILED

    run(test)
    assert caplog.messages == ["process 0 could not be started (Resource temporarily unavailable)"]


def test_a_first_process_that_is_killed_as_it_loads_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async def spawn() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec("sh", "-c", "kill -9 $$")  # as a full memory does

        parent = Parent([ServerConfig(), ServerConfig()])
        parent._processes[0]._spawn = spawn  # type: ignore[method-assign]
        assert await parent.run(lambda line: None, "") == FAILED

    run(test)
    [told] = caplog.messages
    assert re.fullmatch(r"process 0 \(pid \d+\) has ended with status -9", told)


def test_a_bundles_name_may_be_said_in_other_letters() -> None:
    told: list[str] = []

    async def test() -> None:
        async def spawn() -> asyncio.subprocess.Process:
            pipe = asyncio.subprocess.PIPE
            says = r"printf 'timbrel ready on X bundle=Fl\374gel\n'; exec cat"  # as in Latin-1
            return await asyncio.create_subprocess_exec("sh", "-c", says, stdin=pipe, stdout=pipe)

        parent = Parent([ServerConfig()])
        parent._processes[0]._spawn = spawn  # type: ignore[method-assign]
        running = asyncio.create_task(parent.run(told.append, ""))
        await wait_for_async(lambda: bool(told), "the ready line")
        parent._processes[0].end()
        await running

    run(test)
    assert told == ["timbrel ready on X bundle=Fl\ufffdgel processes=1"]


def test_a_process_that_cannot_be_started_again_is_tried_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "SHORTEST_PAUSE_SECONDS", 0.01)
    caplog.set_level(logging.INFO)

    async def test() -> None:
        parent = Parent([ServerConfig(), ServerConfig()])
        first, second = parent._processes
        n_lacking, pipe = 0, asyncio.subprocess.PIPE

        async def spawn() -> asyncio.subprocess.Process:
            nonlocal n_lacking
            if n_lacking:
                n_lacking -= 1
                raise lacks_processes()
            return await asyncio.create_subprocess_exec(
                *("sh", "-c", "echo timbrel ready; exec cat"), stdin=pipe, stdout=pipe
            )

        for process in (first, second):
            process._spawn = spawn  # type: ignore[method-assign]
        running = asyncio.create_task(parent.run(lambda line: None, ""))
        await wait_for_async(lambda: first.is_ready and second.is_ready, "both to be ready")
        n_lacking = 2
        assert first._child is not None
        first._child.kill()
        await wait_for_async(lambda: not n_lacking and first.is_ready, "the first to be ready again")
        assert second.is_ready and not running.done()
        for process in (first, second):
            process.end()
        assert await running == 0

    run(test)
    tries = [line for line in caplog.messages if "could not be started" in line]
    reason = "process 0 could not be started (Resource temporarily unavailable): it is started again"
    assert tries == [f"{reason} in 0.01 s", f"{reason} in 0.02 s"]
