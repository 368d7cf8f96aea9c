"""What the server tells of itself beside its answers: metrics, and the page that shows them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from timbrel_server.engine.observer import EngineObserver
from timbrel_server.serving.shelf import Shelf
from timbrel_server.settings.config import ServerConfig
from timbrel_server.settings.options import ConfigError
from timbrel_server.watching.status_page import StatusPage
from timbrel_server.wire.call_records import CallObserver
from timbrel_server.wire.health import Health

if TYPE_CHECKING:
    from timbrel_server.watching.metrics import Metrics


class Telemetry:
    """Nothing at all, unless the configuration names a port for it."""

    def __init__(self, config: ServerConfig) -> None:
        """
        Raises:
            ConfigError: prometheus_client is not installed.
        """
        self._config = config
        self._metrics: Metrics | None = _make_metrics() if config.metrics_port is not None else None
        self._page: StatusPage | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of the page; empty where there is none."""
        return self._page.address if self._page is not None else ""

    @property
    def calls(self) -> CallObserver | None:
        """Who is told of calls."""
        return self._metrics.calls if self._metrics is not None else None

    def engine_observer(self, bundle: str) -> EngineObserver | None:
        """Who is told of the engine of the bundle of this name."""
        return self._metrics.engine_observer(bundle) if self._metrics is not None else None

    def count_reload(self, part: str, outcome: str) -> None:
        """As `reload.Count`."""
        if self._metrics is not None:
            self._metrics.reloads.labels(part, outcome).inc()

    def start(self, shelf: Shelf, health: Health) -> None:
        """Shows the page.

        Raises:
            ListenError: its address cannot be listened on.
        """
        if self._metrics is None or self._config.metrics_port is None:
            return
        self._metrics.watch(shelf, lambda: health.is_ready)
        host = self._config.metrics_host or self._config.host
        self._page = StatusPage(host, self._config.metrics_port, health, self._metrics.exposition)

    def close(self) -> None:
        """Ends the page."""
        if self._page is not None:
            self._page.close()


def _make_metrics() -> Metrics:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError("metrics_port needs an optional part of timbrel: pip install 'timbrel[metrics]'")
    from timbrel_server.watching.metrics import Metrics

    return Metrics()
