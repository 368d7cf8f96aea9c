"""How many connections a process may have: each is an open file."""

from __future__ import annotations

import contextlib
import resource

RESERVED = 64
"""Files for everything else: the bundle's, the log, threads' own."""


def connections_within_reach(wanted: int) -> int:
    """As many as wanted, or as there are files left over. Raises the process's own limit as far as it may.

    A server that is out of files can open none to send, and none to read anew.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED))
