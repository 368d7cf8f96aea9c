"""A real server in a thread of the test's process: blocking code calls it, and its slots can be looked at."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from in_process_server import PATIENCE_SECONDS, serving
from waiting import wait_for

from timbrel_server.app import App


class BackgroundServer:
    """Serving when this returns; `with` it."""

    def __init__(self, bundle: Path, **options: Any) -> None:
        self._bundle = bundle
        self._options = options
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._app: App | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="server")

    def __enter__(self) -> BackgroundServer:
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the server does not end"

    @property
    def app(self) -> App:
        """The server's parts."""
        assert self._app is not None
        return self._app

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.app.address

    def wait_until_idle(self) -> None:
        """Returns once no request is in hand, and no slot in use; fails where something never leaves."""
        served, engine = self.app._bundles.find(), self.app.engine
        wait_for(lambda: not served.in_use and not (engine and engine.n_occupied), "every slot to be free")

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self._bundle, **self._options) as (self._app, _, _):
            self._started.set()
            await self._stop.wait()
