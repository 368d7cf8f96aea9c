"""The timbrel server: an engine for each bundle that writes many notes at once, and gRPC in front of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Returns the distribution's version; "unknown" where it is not installed."""
    try:
        return version("timbrel")
    except PackageNotFoundError:
        return "unknown"
