"""Reloading at SIGHUP: tokens, certificates and bundles are read anew; certificates also once renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from timbrel_server.config import BundleSource
from timbrel_server.decoder.sessions import free_sessions
from timbrel_server.rpc.auth import AuthInterceptor
from timbrel_server.rpc.certificates import Certificates
from timbrel_server.served_bundles.engine_loader import EngineLoader
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""The pause between two looks at whether a bundle that was replaced is still in use."""

Count = Callable[[str, str], None]
"""Counts an attempt: takes "tokens", "certificates" or "bundle", and "ok", "unchanged" or "failed"."""


class Reloader:
    """Reads each part by itself: one that fails stays as it was, and the log says why."""

    def __init__(
        self,
        auth: AuthInterceptor,
        certificates: Certificates | None,
        sources: Sequence[BundleSource],
        registry: BundleRegistry,
        loader: EngineLoader,
        count: Count = lambda part, outcome: None,
    ) -> None:
        """
        Args:
            sources: of the registry's bundles, in their order; none where that is the bundle that ships.
        """
        self._auth = auth
        self._certificates = certificates
        self._sources = sources
        self._registry = registry
        self._loader = loader
        self._count = count
        self._loading: asyncio.Task[None] | None = None
        self._is_asked = False  # since it began to look at bundles
        self._leaving: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Reads tokens and certificates, and begins with bundles, or has them looked at again. Loading one
        may never end; a token that is taken back does not wait for it. Never raises."""
        if self._auth.has_file:
            await self._read("tokens", self._auth.reload)
        await self.renew_certificates()
        self._is_asked = True
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._reload_bundles())
        else:
            _log.warning("a bundle is still being loaded: bundles are looked at again after that")

    async def renew_certificates(self) -> None:
        """Reads the certificates alone. Never raises."""
        if self._certificates is not None:
            await self._read("certificates", self._certificates.reload)

    def stop(self) -> None:
        """Loads no further bundle, and leaves one that is being loaded alone."""
        if self._loading is not None:
            self._loading.cancel()

    async def close(self) -> None:
        """Frees at once what is still in use of what was replaced."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _read(self, part: str, read: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(read)  # a disk may take its time
        except Exception as error:
            self._say_failed(part, part, error)
        else:
            self._count(part, "ok")
            _log.info("%s: read anew", part)

    async def _reload_bundles(self) -> None:
        while self._is_asked:
            self._is_asked = False
            for source, served in zip(self._sources, tuple(self._registry), strict=False):
                await self._reload_bundle(source, served)

    async def _reload_bundle(self, source: BundleSource, old: ServedBundle) -> None:
        """Loads and warms up beside the old one, which goes on until the new one takes its place."""
        try:
            new = await asyncio.to_thread(self._loader.open, BundleSource(source.folder, old.name))
            if (new.bundle.path, new.manifest) == (old.bundle.path, old.manifest):
                self._count("bundle", "unchanged")
                _log.info("bundle %s: unchanged", old.name)
                return
            _log.info("bundle %s: %s is being loaded", new.name, new.manifest.bundle_hash)
            await self._loader.start(new)
        except Exception as error:
            self._say_failed("bundle", f"bundle {old.name}", error)
            return
        self._registry.replace(new)
        self._count("bundle", "ok")
        _log.info("bundle %s: %s serves now", new.name, new.manifest.bundle_hash)
        task = asyncio.create_task(_free([old], self._registry))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _say_failed(self, part: str, what: str, error: Exception) -> None:
        self._count(part, "failed")
        _log.error("%s: what is in use stays, for reading anew failed: %s", what, error)


async def _free(last: list[ServedBundle], registry: BundleRegistry) -> None:
    """Waits until nobody needs it any more.

    Args:
        last: a list of one, which is emptied: what it held is the last reference but for cycles.
        registry: forgets it.
    """
    [served] = last
    name, bundle_hash = served.name, served.manifest.bundle_hash
    try:
        while served.in_use:
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await asyncio.to_thread(served.close)
        registry.forget(served)
        del served
        await asyncio.to_thread(free_sessions, last)
        _log.info("bundle %s: %s is freed", name, bundle_hash)
