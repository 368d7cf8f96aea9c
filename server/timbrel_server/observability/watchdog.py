"""The watchdog notices an engine that no longer gets on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from timbrel_server.rpc.health import Health
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""The pause between two looks, at most."""


class Watchdog:
    """Looks at every engine once in a while: one that is seen in the same step for too long has stalled.

    It counts its looks and reads no clock, so that a clock that jumps, or a machine that slept, is no stall.
    """

    def __init__(
        self,
        bundles: BundleRegistry,
        health: Health,
        stall_seconds: float,
        on_stall: Callable[[ServedBundle], None],
    ) -> None:
        """
        Args:
            bundles: those that others have taken the place of are looked at, too, until they are freed.
            stall_seconds: a step may take so long.
            on_stall: called once with the bundle, after its requests were failed.
        """
        self._bundles = bundles
        self._health = health
        self._pause = min(LOOK_SECONDS, stall_seconds / 4)
        self._patience = max(2, round(stall_seconds / self._pause))
        self._on_stall = on_stall
        self._seen: dict[object, tuple[int, int]] = {}  # by engine and device: the step, and looks at it

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await asyncio.sleep(self._pause)
            self._health.beat()
            self._look()

    def _look(self) -> None:
        """Fails the requests of engines that have stalled, and tells of them."""
        seen: dict[object, tuple[int, int]] = {}
        for served in (*self._bundles, *self._bundles.replaced):
            engine = served.engine
            if engine is None or not engine.is_accepting:
                continue
            for index, step in enumerate(engine.steps_in_progress):
                if step is None:
                    continue
                key = (id(engine), index)
                before, looks = self._seen.get(key, (step, 0))
                looks = looks + 1 if before == step else 1
                seen[key] = (step, looks)
                if looks > self._patience:
                    _log.critical("the engine of %s has been in one step for too long", served.name)
                    engine.fail("the engine has stalled")
                    self._on_stall(served)
                    break
        self._seen = seen
