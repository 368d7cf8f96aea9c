"""A server of one's own: a subprocess on a free loopback port that ends with whoever started it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from timbrel.errors import MissingExtraError, UnavailableError
from timbrel.settings import SERVER_VARIABLE, TOKEN_VARIABLE

BUNDLE_VARIABLE = "TIMBREL_BUNDLE"
"""Environment variable that names the bundle folder a private server serves."""

START_TIMEOUT_SECONDS = 120.0
"""Loading a bundle takes a second or so; a slow machine is given more."""

STOP_TIMEOUT_SECONDS = 5.0
"""After this a server that was asked to stop is killed."""

_READY = re.compile(r"timbrel ready on (?P<address>\S+:\d+)")
_MISSING_MODULE = re.compile(r"No module named '(?P<module>[\w.]+)'")
_SERVER_MODULE = "timbrel_server"


class PrivateServer(contextlib.AbstractContextManager["PrivateServer"]):
    """Starts a server and waits until it is ready.

    Args:
        bundle: the bundle folder to serve; by default TIMBREL_BUNDLE, else the bundle that ships.
        options: more of the server's command line.

    Raises:
        MissingExtraError: the server is not installed.
        UnavailableError: it did not start; the message says why.
    """

    def __init__(self, bundle: str | os.PathLike[str] | None = None, options: Sequence[str] = ()) -> None:
        if importlib.util.find_spec(_SERVER_MODULE) is None:
            raise _missing_extra()
        if not sys.executable or getattr(sys, "frozen", False):  # it would start the program anew, for ever
            raise UnavailableError(
                "the private server did not start: this program is no Python interpreter that could run it;"
                f" name a server ({SERVER_VARIABLE})"
            )
        self.token = secrets.token_urlsafe(32)
        """The server asks its callers for it."""
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise UnavailableError(
                f"the private server did not start: no file for its log ({error.strerror or error}); set"
                " TMPDIR to a folder that can be written to, or name a server"
            ) from error
        self._process = self._start(bundle, options)
        self._lines: queue.Queue[str | None] = queue.Queue()
        # Neither holds this object: who drops it without closing it must not leave a server running.
        threading.Thread(target=_read_output, args=(self._process.stdout, self._lines), daemon=True).start()
        self._hang_up = weakref.finalize(self, _close, self._process.stdin)
        self._hang_up.atexit = False  # what the program does at its end may still ask the server
        _running.add(self)
        try:
            self.address = self._wait_until_ready(time.monotonic() + START_TIMEOUT_SECONDS)
            """HOST:PORT."""
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def close(self) -> None:
        """Stops the server; it is gone when this returns. Calling it again does nothing."""
        self._hang_up()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def fate(self) -> str | None:
        """Says that the server has ended by itself, and by what as far as it told; None while it runs."""
        if (status := self._process.poll()) is None or self._log.closed:
            return None
        why = self._last_words(status)
        return f"the private server has ended ({why}); another Client, or command, starts one"

    def _start(self, bundle: str | os.PathLike[str] | None, options: Sequence[str]) -> subprocess.Popen[str]:
        # -P: no module of the folder that the caller happens to be in is taken for one of the server's.
        command = [sys.executable, "-P", "-m", _SERVER_MODULE, "--port", "0", "--exit-with-parent"]
        # A line for each call would be read by nobody, and fill the disk.
        command += ["--log-level", "warning", *options]
        folder = bundle if bundle is not None else os.environ.get(BUNDLE_VARIABLE)
        if folder:
            command += ["--bundle", str(Path(folder))]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            errors="replace",  # its name for a bundle may be in other letters than this process's
            env=_environment(self.token),
            # A terminal's Ctrl-C is the client's to handle: it stops the server itself. In a session of its
            # own it would be scheduled apart from the client (Linux's autogroup), and come up to 65 ms late.
            process_group=0,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same, of Windows
        )

    def _wait_until_ready(self, deadline: float) -> str:
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise UnavailableError(
                    f"the private server was not ready after {START_TIMEOUT_SECONDS:.0f} seconds"
                ) from None
            if line is None:
                raise self._start_failure()
            if match := _READY.match(line):
                return match["address"]

    def _start_failure(self) -> MissingExtraError | UnavailableError:
        last = self._last_words(self._process.wait())
        self._log.seek(0)
        if missing := _MISSING_MODULE.search(self._log.read().decode(errors="replace")):
            return _missing_extra(f"{missing['module']} is not installed; ")
        return UnavailableError(f"the private server did not start: {last}")

    def _last_words(self, status: int) -> str:
        """The last line of a server that has ended, else its exit status."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return text.splitlines()[-1].removeprefix("timbrel: ") if text else f"exit status {status}"


def _read_output(output: IO[str] | None, lines: queue.Queue[str | None]) -> None:
    """Keeps the pipe empty for as long as the server lives."""
    if output is not None:
        with output:
            for line in output:
                lines.put(line)
    lines.put(None)


def _close(server_input: IO[str] | None) -> None:
    """Ends the server's input, which tells it to leave at once, whatever it is doing."""
    if server_input is not None:
        with contextlib.suppress(OSError):
            server_input.close()


_running: weakref.WeakSet[PrivateServer] = weakref.WeakSet()


def _hang_up_in_child() -> None:
    """In a forked child: its copies of the servers' inputs would keep them running after their client."""
    for server in list(_running):
        server._hang_up()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hang_up_in_child)


def _environment(token: str) -> dict[str, str]:
    """This process's, without what would configure a server of another kind; its last words are in UTF-8."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TIMBREL_")}
    return {**own, TOKEN_VARIABLE: token, "PYTHONIOENCODING": "utf-8"}


def _missing_extra(missing: str = "") -> MissingExtraError:
    reason = f"{missing}none was named by --server or TIMBREL_SERVER"
    return MissingExtraError(f"a private server ({reason})", "cpu,server")
