"""Several processes behind one address: a parent that starts servers, each with its engines, and keeps them.

The kernel shares connections out among those who listen on the port (SO_REUSEPORT).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from http.client import HTTPException

from timbrel_bundle.runtime import cores_within_quota
from timbrel_server.config import ServerConfig
from timbrel_server.observability.telemetry import StatusPage
from timbrel_server.options import environment_without, flags_of
from timbrel_server.rpc.listener import reserve_port
from timbrel_server.signals import HangupSignal, StopSignal

_log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
"""A process has this time to answer a probe."""

SHORTEST_PAUSE_SECONDS = 0.5
"""Before a process is started again that has ended without ever being ready; it doubles each time."""

LONGEST_PAUSE_SECONDS = 30.0

HURRY_SECONDS = 3.0
"""A process that is to end in a hurry has this time: it needs a second, and another one for a log that nobody
reads. One that is stuck, holding its interpreter, hears nothing."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks processes of this machine, so by no proxy, whatever `http_proxy` says."""

FAILED = 1
"""Exit status where a process could not be started, or did not end well."""


async def serve_in_processes(config: ServerConfig, announce: Callable[[str], None]) -> int:
    """Serves until told to stop, with `config.n_processes` processes; returns the exit status.

    Args:
        announce: takes the ready line, once all are ready.

    Raises:
        ListenError: an address cannot be listened on.
    """
    stop, hangup = StopSignal(), HangupSignal()
    stop.watch_signals()
    if config.exit_with_parent:
        stop.watch_standard_input()
    with reserve_port(config.host, config.port) as reserved:
        parent = Parent(share_out(replace(config, port=reserved.getsockname()[1])))
        page = None
        if config.metrics_port is not None:
            page = StatusPage(config.metrics_host or config.host, config.metrics_port, parent, parent.metrics)
        tasks = [asyncio.create_task(hangup.repeat(parent.reload)), asyncio.create_task(parent.end(stop))]
        try:
            return await parent.run(announce, f" metrics={page.address}" if page is not None else "")
        finally:
            for task in tasks:
                task.cancel()
            if page is not None:
                page.close()


def share_out(config: ServerConfig) -> Sequence[ServerConfig]:
    """Returns the configuration of each process: cores and devices are shared out; on a device that several
    share, each has the graphs and the memory of an engine of its own."""
    n, devices = config.n_processes, config.devices
    common = replace(
        config,
        n_processes=1,
        reuse_port=True,
        exit_with_parent=True,
        n_threads=config.n_threads or max(1, cores_within_quota() // n),
        metrics_host=None if config.metrics_port is None else "127.0.0.1",
        metrics_port=None if config.metrics_port is None else 0,
    )
    return [replace(common, devices=devices[k::n] or (devices[k % len(devices)],)) for k in range(n)]


class Parent:
    """Keeps the processes running. It has no engine, and answers no call."""

    def __init__(self, configs: Sequence[ServerConfig]) -> None:
        """
        Args:
            configs: of each process.
        """
        self._processes = [_Process(number, config) for number, config in enumerate(configs)]
        self._was_ready = False

    @property
    def is_ready(self) -> bool:
        """Whether notes are written: by some process, once all were ready. From any thread, as the next."""
        return self._was_ready and any(said for _, said in _ask("/readyz", self._processes))

    @property
    def is_alive(self) -> bool:
        """Whether it need not be started anew: some process runs, and none says that it is dead or stuck."""
        running = [process for process in self._processes if process.is_ready]
        return not self._was_ready or (bool(running) and all(said for _, said in _ask("/livez", running)))

    async def run(self, announce: Callable[[str], None], said_with_it: str) -> int:
        """Returns the exit status once all have ended: told to, or since one could not be started.

        The first is started alone, so that what is wrong with the options is said once, and what is derived
        from a bundle at its first load is derived once.
        """
        kept = []
        for some in (self._processes[:1], self._processes[1:]):
            kept += [asyncio.create_task(process.keep()) for process in some]
            if not all(await asyncio.gather(*(process.started for process in some))):
                for process in self._processes:
                    process.end()
                break
        else:
            self._was_ready = True
            announce(f"{self._processes[0].ready_line}{said_with_it} processes={len(self._processes)}")
        return max(0, *await asyncio.gather(*kept))

    async def reload(self) -> None:
        """Each reads anew what it can."""
        for process in self._processes:
            process.reload()

    async def end(self, stop: StopSignal) -> None:
        """Passes on when to end, and that it is to be in a hurry; ends those that do not hear."""
        await stop.asked.wait()
        for process in self._processes:
            process.end()
        await stop.hurry.wait()
        for process in self._processes:
            process.hurry()
        await asyncio.sleep(HURRY_SECONDS)
        for process in self._processes:
            process.kill()

    def metrics(self) -> bytes:
        """Returns what all processes say, each with its number."""
        from timbrel_server.observability.metrics import merged

        return merged(dict(sorted(_ask("/metrics", self._processes))))


def _ask(path: str, processes: Sequence[_Process]) -> Iterator[tuple[int, str]]:
    """Yields the number of each process and what it says, as it comes: they are asked at once, so that those
    which are stuck or slow keep who asks waiting for no longer than one does."""
    pool = ThreadPoolExecutor(len(processes))
    try:
        saying = {pool.submit(process.says, path): process.number for process in processes}
        for said in as_completed(saying):
            yield saying[said], said.result()
    finally:
        pool.shutdown(wait=False)


class _Process:
    """One of them: a server as any other, with these options. It ends when its standard input does."""

    def __init__(self, number: int, config: ServerConfig) -> None:
        self.number = number
        self.started = asyncio.get_running_loop().create_future()
        """Whether it has ever been ready; known once it is, or has ended."""
        self.ready_line = ""
        self.is_ready = False
        self._config = config
        self._metrics_address = ""
        self._child: asyncio.subprocess.Process | None = None
        self._is_ending = asyncio.Event()
        self._n_reloads = 0

    async def keep(self) -> int:
        """Runs it, and starts it again when it ends; returns its exit status, 0 or above, once it was told to
        end, or where it has never been ready."""
        pause, status = 0.0, 0
        while not self._is_ending.is_set():
            n_reloads, was_ready = self._n_reloads, False
            try:
                self._child = child = await self._spawn()
            except OSError as error:  # the system has no process, memory or file left
                self._child, status = None, 0
                fate = f"could not be started ({error.strerror})"
            else:
                if self._is_ending.is_set():  # since
                    self._send(signal.SIGTERM)
                self._take(await child.stdout.readline() if child.stdout is not None else b"")
                if self.is_ready and n_reloads < self._n_reloads:
                    self._send(signal.SIGHUP)
                was_ready = self.is_ready
                status = await child.wait()
                self.is_ready = False
                fate = f"(pid {child.pid}) has ended with status {status}"
            if self._is_ending.is_set():
                break
            if not self.started.done():
                if self._child is None or status < 0:  # else it has said itself what is wrong
                    _log.error("process %d %s", self.number, fate)
                status = status if status > 0 else FAILED
                break
            status = 0
            pause = 0.0 if was_ready else min(max(2 * pause, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            again = f"in {pause:g} s" if pause else "now"
            _log.error("process %d %s: it is started again %s", self.number, fate, again)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_ending.wait(), pause)
        if not self.started.done():
            self.started.set_result(False)
        return max(0, status)

    def reload(self) -> None:
        """It reads anew what it can: now, or once it is ready; before that a SIGHUP would end it."""
        self._n_reloads += 1
        if self.is_ready:
            self._send(signal.SIGHUP)

    def end(self) -> None:
        """It finishes what it has in hand, and is not started again."""
        self._is_ending.set()
        self._send(signal.SIGTERM)

    def hurry(self) -> None:
        """It ends at once."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def kill(self) -> None:
        """It is no more, whatever it does."""
        self._send(signal.SIGKILL)

    def says(self, path: str) -> str:
        """Returns what its page says; nothing where that is no, or it has nothing to say now."""
        if self.is_ready:
            with contextlib.suppress(OSError, HTTPException):
                url = f"http://{self._metrics_address}{path}"
                with _OPENER.open(url, timeout=ANSWER_SECONDS) as reply:
                    return str(reply.read(), "utf-8")
        return ""

    async def _spawn(self) -> asyncio.subprocess.Process:
        """Starts it, out of reach of the terminal's Ctrl-C, which the parent passes on."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-P", "-m", "timbrel_server", *flags_of(self._config))
        environment = environment_without(self._config)
        if self._config.token is not None:
            environment["TIMBREL_TOKEN"] = self._config.token
        return await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
        )

    def _take(self, line: bytes) -> None:
        if line and self._child is not None:
            told = line.decode(errors="replace")  # a bundle's name may be in other letters than UTF-8's
            self.ready_line, _, self._metrics_address = told.rstrip("\n").partition(" metrics=")
            self.is_ready = True
            _log.info("process %d is ready: pid %d", self.number, self._child.pid)
            if not self.started.done():
                self.started.set_result(True)

    def _send(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)
