"""Loading: from a bundle's folder to an engine that has warmed up."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import BundleError, ProviderError
from timbrel_bundle.runtime import CPU
from timbrel_bundle.weights import check_weights
from timbrel_server.config import BundleSource, ServerConfig, default_bundle_path
from timbrel_server.decoder.runner import CaptureError, Runner
from timbrel_server.decoder.sessions import DecoderSessions, free_sessions, open_sessions
from timbrel_server.engine.delivery import Post, post_to
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import EngineObserver
from timbrel_server.engine.scheduler import FrameClock
from timbrel_server.options import ConfigError
from timbrel_server.served_bundles.served_bundle import ServedBundle, frame_rate, token_layout

_log = logging.getLogger(__name__)

LATE_WEIGHTS = (layout.CODEC_WEIGHTS, layout.TIMBRE_WEIGHTS)
"""Those that are read once audio is asked for, or a recording is to be located: too late to refuse them."""

_NOT_AS_STATED = (KeyError, OverflowError, RuntimeError, TypeError, ValueError)
"""What onnxruntime's bindings raise, and arithmetic on a graph's sizes, which may be names or too large."""

_MEMORY_ENDS = re.compile("Failed to allocate memory|bad_alloc|out of memory")
"""In the message of onnxruntime's errors, by which alone they differ: of its arenas, of C++ and of CUDA."""


def open_bundles(config: ServerConfig) -> Sequence[ServedBundle]:
    """Opens the bundles to be served, without engines as yet. Blocks.

    Raises:
        BundleError: a bundle is incomplete or damaged.
        ConfigError: two have the same name, or `max_seconds` is too short for one.
    """
    sources = config.bundles or (BundleSource(default_bundle_path()),)
    opened = [open_bundle(source, config.max_seconds) for source in sources]
    names = [served.name for served in opened]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"two bundles are called {twice!r}: say --bundle NAME=DIR to give each its own name"
        )
    return opened


def open_bundle(source: BundleSource, max_seconds: float | None = None) -> ServedBundle:
    """Opens one. A server hands out any of the bundle's files, so it wants them all there. Blocks.

    Where the folder is a symbolic link, what it leads to now is served: the link may be turned to another
    folder, and SIGHUP be sent, without a file being changed under a reader's feet.
    """
    bundle = Bundle.open(source.folder.resolve() if source.folder.exists() else source.folder)
    bundle.require()
    _ = bundle.timbre_map, bundle.timbre_references  # read now, so that a damaged one is told now
    for name in LATE_WEIGHTS:
        if name in bundle:
            check_weights(bundle.file(name))
    return ServedBundle(bundle, source.name, max_seconds)


class EngineLoader:
    """Makes engines, all alike, for one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        on_death: Callable[[ServedBundle], None],
        observe: Callable[[str], EngineObserver] = lambda name: EngineObserver(),
    ) -> None:
        """
        Args:
            on_death: called on the event loop with the bundle, once its engine has died.
            observe: makes the observer of the engine of the bundle of this name.
        """
        self._config = config
        self._on_death = on_death
        self._observe = observe

    def open(self, source: BundleSource) -> ServedBundle:
        """Opens a bundle as `open_bundle` does, with the configuration's limits."""
        return open_bundle(source, self._config.max_seconds)

    async def start(self, served: ServedBundle) -> None:
        """Loads, warms up and starts a bundle's engine, off the event loop.

        Raises:
            BundleError: the bundle is damaged, or its graphs cannot be run together.
            ProviderError: provider or precision cannot be had.
        """
        loop, observer = asyncio.get_running_loop(), self._observe(served.name)

        def on_death() -> None:
            loop.call_soon_threadsafe(self._on_death, served)

        post = post_to(loop, observer)
        try:
            served.attach(*await asyncio.to_thread(self._load, served, post, on_death, observer))
            return
        except CaptureError as error:
            _log.warning("%s: steps are launched kernel by kernel: CUDA graphs fail (%s)", served.name, error)
        await asyncio.to_thread(free_sessions, [])
        made = await asyncio.to_thread(self._load, served, post, on_death, observer, captures=False)
        served.attach(*made)

    def _load(
        self,
        served: ServedBundle,
        post: Post,
        on_death: Callable[[], None],
        observer: EngineObserver,
        *,
        captures: bool = True,
    ) -> tuple[EnginePool, DecoderSessions]:
        """Makes an engine for each device, and warms them up; returns the first device's graphs, too."""
        config = self._config
        opened = [
            open_sessions(
                served.bundle, config.provider, config.n_threads, config.precision, device, captures=captures
            )
            for device in config.devices
        ]
        if opened[0].provider == CPU and len(opened) > 1:
            raise ProviderError("the CPU is one device: name several with --provider cuda only")
        path = served.bundle.path
        try:
            engine = EnginePool(
                [Runner(each, served.bundle.manifest, config.n_slots, fast=config.fast) for each in opened],
                token_layout(served.manifest),
                config.queue_capacity,
                post,
                on_death,
                frame_clock=FrameClock(frame_rate(served.manifest)),
                queue_frames=config.queue_frames,
                caller_share=config.caller_share,
                observer=observer,
            )
            engine.start()
        except CaptureError:
            raise
        except (MemoryError, *_NOT_AS_STATED) as error:
            if isinstance(error, MemoryError) or _MEMORY_ENDS.search(str(error)):
                fault = f"{config.n_slots} of its notes do not fit into the memory ({error})"
                raise BundleError(path, fault, "serve it with fewer --slots") from None
            fault = f"its graphs do not run as the manifest says ({type(error).__name__}: {error})"
            raise BundleError(path, fault) from error
        return engine, opened[0]
