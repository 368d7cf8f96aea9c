"""What a page sends: read no further than it is wanted."""

from __future__ import annotations

from starlette.requests import Request

from timbrel.errors import TimbrelError

PATIENT_FACTOR = 4
"""So many times the limit is read and thrown away, so that a browser still sending hears what was wrong."""


class TooLargeError(TimbrelError):
    """The body of a request is larger than it may be."""


async def read_body(request: Request, max_bytes: int, what: str) -> bytes:
    """The body of a request.

    Args:
        what: it is, for the message.

    Raises:
        TooLargeError: it is longer than `max_bytes`, of which no more are held.
        starlette.requests.ClientDisconnect: the caller has left.
    """
    parts: list[bytes] = []
    n_bytes = 0
    async for part in request.stream():
        n_bytes += len(part)
        if n_bytes <= max_bytes:
            parts.append(part)
        else:
            parts.clear()
        if n_bytes > PATIENT_FACTOR * max_bytes:
            break
    if n_bytes > max_bytes:
        raise TooLargeError(f"{what} is too large; {_size(max_bytes)} at most are taken")
    return b"".join(parts)


def _size(n_bytes: int) -> str:
    return f"{n_bytes >> 20} MiB" if n_bytes >= 2**20 else f"{n_bytes >> 10} KiB"
