"""Which timbrel this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The distribution's version; "unknown" where it is not installed."""
    try:
        return version("timbrel")
    except PackageNotFoundError:
        return "unknown"
