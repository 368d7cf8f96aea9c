"""The watchdog notices an engine that no longer gets on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from timbrel_server.rpc.health import Health
from timbrel_server.served_bundles.served_bundle import BundleRegistry

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""The pause between two looks, at most."""


class Watchdog:
    """Looks at every engine once in a while: one that is seen in the same step for too long has stalled.

    It counts its looks and reads no clock, so that a clock that jumps, or a machine that slept, is no stall.
    """

    def __init__(
        self, bundles: BundleRegistry, health: Health, stall_seconds: float, on_stall: Callable[[str], None]
    ) -> None:
        """
        Args:
            stall_seconds: a step may take so long.
            on_stall: called once with the bundle's name, after its requests were failed.
        """
        self._bundles = bundles
        self._health = health
        self._pause = min(LOOK_SECONDS, stall_seconds / 4)
        self._patience = max(2, round(stall_seconds / self._pause))
        self._on_stall = on_stall
        self._seen: dict[object, tuple[int, int]] = {}  # by engine and device: the step, and looks at it

    async def run(self) -> None:
        """Looks until an engine has stalled."""
        while True:
            await asyncio.sleep(self._pause)
            self._health.beat()
            for name in self._look():
                self._on_stall(name)
                return

    def _look(self) -> list[str]:
        """Returns the names of the bundles whose engine has stalled: their requests have been failed."""
        seen: dict[object, tuple[int, int]] = {}
        stalled = []
        for served in self._bundles:
            engine = served.engine
            for index, step in enumerate(engine.steps_in_progress if engine is not None else ()):
                if engine is None or step is None:
                    continue
                key = (id(engine), index)
                before, looks = self._seen.get(key, (step, 0))
                looks = looks + 1 if before == step else 1
                seen[key] = (step, looks)
                if looks > self._patience:
                    _log.critical("the engine of %s has been in one step for too long", served.name)
                    engine.fail("the engine has stalled")
                    stalled.append(served.name)
        self._seen = seen
        return stalled
