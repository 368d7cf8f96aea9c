"""The bridge's connection to a server that cannot be started again."""

from __future__ import annotations

import pytest
from in_process_server import run
from waiting import wait_for_async

from timbrel.explore import upstream
from timbrel.explore.upstream import Backend, Upstream
from timbrel.settings import ClientSettings


class StuckBackend(Backend):
    """A server of one's own, on a machine that is out of processes."""

    def __init__(self) -> None:
        super().__init__(ClientSettings.resolve("127.0.0.1:9", "", 60.0, None, None, {}))
        self.n_revived = 0

    async def revive(self) -> bool:
        self.n_revived += 1
        raise BlockingIOError("no more processes")


def test_a_server_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "LONGEST_DELAY_SECONDS", 0.01)
    backend = StuckBackend()

    async def test() -> None:
        async with Upstream(backend) as server:
            with server.watched():
                await wait_for_async(lambda: backend.n_revived >= 2, "a second attempt")

    run(test)
