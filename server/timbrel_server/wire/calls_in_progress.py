"""How many calls are in progress, for a server that ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from timbrel_server.errors import UnavailableError


class CallsInProgress:
    """Counts calls, so that a server can begin no more and wait for the last to end."""

    def __init__(self) -> None:
        self._closed = False
        self._n = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Counts a call for as long as the block runs. Raises UnavailableError once closed."""
        if self._closed:
            raise UnavailableError("the server is shutting down")
        self._n += 1
        self._none.clear()
        try:
            yield
        finally:
            self._n -= 1
            if self._n == 0:
                self._none.set()

    def close(self) -> None:
        """Lets no call begin any more.

        gRPC's own `stop` would cut calls that have just come with CANCELLED, which no client tries again.
        """
        self._closed = True

    async def wait_for_none(self) -> None:
        """Returns once no call is in progress."""
        await self._none.wait()
