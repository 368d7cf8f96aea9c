"""The signals that tell a server to end, and those that tell it to read its files anew."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable

from timbrel_bundle.standard_streams import wait_for_end_of_input


class StopSignal:
    """Set by SIGTERM and SIGINT, on Windows also SIGBREAK: the first asks to finish what is in hand, a second
    to end at once.

    Must be made inside a running event loop.
    """

    def __init__(self, *, second_hurries: bool = True) -> None:
        """
        Args:
            second_hurries: False where a parent passes the first on, and closes the standard input at its
                second one: systemd sends each process of a service a signal, too.
        """
        self._loop = asyncio.get_running_loop()
        self._second_hurries = second_hurries
        self.asked = asyncio.Event()
        """The server should end."""
        self.hurry = asyncio.Event()
        """It should end without finishing anything."""

    def watch_signals(self) -> None:
        """Takes them from now on."""
        # Ctrl-Break is all that one program of Windows can send to another that has a group of its own.
        for number in {signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGINT)}:
            try:
                self._loop.add_signal_handler(number, self._ask)
            except NotImplementedError:  # Windows
                signal.signal(number, self._call_ask)

    def watch_standard_input(self) -> None:
        """Ends in a hurry where the standard input ends: whoever held its other end is gone."""
        threading.Thread(target=self._read_to_the_end, name="standard-input", daemon=True).start()

    def _call_ask(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._ask)

    def _ask(self) -> None:
        if self.asked.is_set() and self._second_hurries:
            self.hurry.set()
        self.asked.set()

    def _orphaned(self) -> None:
        self.hurry.set()
        self.asked.set()

    def _read_to_the_end(self) -> None:
        wait_for_end_of_input()
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._orphaned)


class HangupSignal:
    """Takes SIGHUP, which would end the process. One that comes before `repeat`, or amid it, is not lost. On
    Windows none ever comes.

    Must be made inside a running event loop.
    """

    def __init__(self) -> None:
        self._came = asyncio.Event()
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._came.set)

    async def repeat(self, action: Callable[[], Awaitable[None]]) -> None:
        """Does this at each signal, one at a time, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            await action()
