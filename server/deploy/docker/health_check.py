"""Exit status 0 where this container's server is ready: what HEALTHCHECK runs.

Plain HTTP to the metrics port, so that it needs neither certificate nor token whatever the server asks for.
"""

from __future__ import annotations

import os
import sys
import urllib.request

TIMEOUT_SECONDS = 4.0


def is_ready(port: str) -> bool:
    """Whether /readyz says so."""
    here = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever `http_proxy` says
    try:
        with here.open(f"http://127.0.0.1:{port}/readyz", timeout=TIMEOUT_SECONDS) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if is_ready(os.environ.get("TIMBREL_METRICS_PORT", "9464")) else 1)
