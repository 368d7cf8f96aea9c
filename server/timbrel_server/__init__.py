"""The timbrel server: an engine for each bundle that writes many notes at once, and gRPC in front of it."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

# Read once, as gRPC is imported. It writes a line to the standard error itself for whatever header it cannot
# read, which any stranger can send: where nobody reads them, its threads wait for good.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def own_version() -> str:
    """Returns the distribution's version; "unknown" where it is not installed."""
    try:
        return version("timbrel")
    except PackageNotFoundError:
        return "unknown"
