"""The explorer's bridge on a real port, inside the test's event loop; and a page without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from requirements_gate import require_module

from timbrel.explore.options import ExploreOptions, listen
from timbrel.settings import ClientSettings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from timbrel.explore.upstream import Upstream

HTTP_SECONDS = 60.0
NOTE = {"x": 0.1, "y": 0.2, "pitch": 60, "seed": 7}


def require_explore() -> None:
    """Skips the running test, or fails it, where the extra `explore` is not installed."""
    for module in ("starlette", "uvicorn", "websockets"):
        require_module(module, "explore")


@dataclass(frozen=True)
class Answer:
    """An HTTP response, read whole."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code, message."""
        told = self.json["error"]
        return self.status, told["code"], told["message"]


@dataclass(frozen=True)
class Explorer:
    """A running bridge."""

    port: int
    upstream: Upstream

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    async def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """One request; underscores in the names of headers stand for hyphens."""
        return await asyncio.to_thread(self._ask, path, method, body, headers)

    def page(self, **options: Any) -> contextlib.AbstractAsyncContextManager[Page]:
        """A page with its WebSocket open; options are those of websockets' `connect`."""
        return open_page(f"ws://{self.host}/api/play", self.origin, **options)

    def _ask(self, path: str, method: str, body: Any, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HTTP_SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()


class Page:
    """What a page says and hears on its WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.said: list[dict[str, Any]] = []
        """Every JSON message, in order."""
        self.sound: defaultdict[int, bytes] = defaultdict(bytes)
        """float32 by note."""
        self._heard = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def on(self, note_id: int, **fields: Any) -> None:
        await self.say("on", id=note_id, **{**NOTE, **fields})

    async def until(self, happened: Callable[[], Any]) -> Any:
        """Waits for it; returns what it returns."""
        async with self._heard:
            return await self._heard.wait_for(happened)

    async def told(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first message of this kind with these fields; waits for it."""
        wanted = {"type": kind, **fields}
        found: dict[str, Any] = await self.until(
            lambda: next((each for each in self.said if wanted.items() <= each.items()), None)
        )
        return found

    def has(self, kind: str, **fields: Any) -> bool:
        wanted = {"type": kind, **fields}
        return any(wanted.items() <= each.items() for each in self.said)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.socket.close()

    async def _listen(self) -> None:
        async for message in self.socket:
            async with self._heard:
                if isinstance(message, bytes):
                    self.sound[int.from_bytes(message[:4], "little")] += message[4:]
                else:
                    self.said.append(json.loads(message))
                self._heard.notify_all()


@contextlib.asynccontextmanager
async def open_page(address: str, origin: str | None, **options: Any) -> AsyncIterator[Page]:
    """A page of this Origin."""
    from websockets.asyncio.client import connect

    settings = {"origin": origin, "compression": None, "max_size": None, **options}
    async with connect(address, **settings) as socket:
        page = Page(socket)
        try:
            yield page
        finally:
            await page.close()


@contextlib.asynccontextmanager
async def exploring(
    address: str, *, token: str | None = None, web: Path | None = None, allowed_hosts: tuple[str, ...] = ()
) -> AsyncIterator[Explorer]:
    """A bridge to the gRPC server at this address."""
    from timbrel.explore.app import make_app
    from timbrel.explore.instruments import Instruments
    from timbrel.explore.run import make_server
    from timbrel.explore.upstream import Upstream

    settings = ClientSettings.resolve(address, token or "", 60.0, None, None, {})
    options = ExploreOptions(port=0, allowed_hosts=allowed_hosts, **({} if web is None else {"web": web}))
    listener = listen(options.host, 0)
    async with Upstream(settings) as upstream, Instruments(upstream) as instruments:
        app = make_app(upstream, instruments, options)
        server = make_server(app, options)
        ended = asyncio.Event()

        async def until_ended() -> None:
            """Is told at once, where uvicorn itself looks ten times a second whether it is to end."""
            await server.on_tick(0)
            await ended.wait()

        server.main_loop = until_ended  # type: ignore[method-assign]
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield Explorer(listener.getsockname()[1], upstream)
        finally:
            ended.set()
            await serving
