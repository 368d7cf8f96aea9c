"""The bridge's connection to a server that cannot be started again."""

from __future__ import annotations

import pytest
from in_process_server import run
from waiting import wait_for_async

from timbrel.aio.connection import Connection
from timbrel.explore import upstream
from timbrel.explore.upstream import Upstream
from timbrel.settings import ClientSettings


def test_a_server_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of one's own, on a machine that is out of processes."""
    attempts = []

    async def restart(_: Connection) -> None:
        attempts.append("")
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(upstream, "LONGEST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(Connection, "restart_server", restart)

    async def test() -> None:
        async with Upstream(ClientSettings.resolve("127.0.0.1:9", "", 60.0, None, None, {})) as server:
            with server.watched():
                await wait_for_async(lambda: len(attempts) >= 2, "a second attempt")

    run(test)
