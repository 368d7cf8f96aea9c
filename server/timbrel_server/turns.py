"""Turns: calls begin one at a time, callers in turn, and after what has just come has been heard."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque

CROWD = 16
"""Where more come at once than this, those who are at the door are let in first."""

CROWDING_SECONDS = 0.002
"""Calls come at once where this thread has done no more between them: less than it takes to answer two."""

QUIET_ROUNDS = 16
"""Rounds of the event loop, some tenth of a millisecond, in which no call came: all have been let in."""

MOST_ROUNDS = 256
"""However many go on coming, a call begins so often."""


class Turns:
    """Spreads the beginnings of calls out: one in each round of the event loop, so that what else there is to
    do waits for one of them at most, and a caller who begins hundreds at once waits for itself.

    gRPC lets calls in one by one, as they come, and health checks among them. While a crowd comes, few of it
    begin: the last at the door is heard once the others are in, not once they are answered.

    For one event loop. A turn needs not be given back: it ends with the round.
    """

    def __init__(self) -> None:
        # By caller: who is next comes first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.n_waiting = 0
        """Those who wait, with those among them who have given up."""
        self._is_taken = False  # in this round
        self._arrived_at = 0.0  # in seconds of work, which a machine that is busy elsewhere does not stretch
        self._n_coming = 0  # calls that came at once
        self._n_quiet = 0  # rounds since a call was let in
        self._n_rounds = 0  # since one began

    def arrived(self) -> None:
        """Says that a call was let in, whatever it is."""
        now = time.thread_time()
        self._n_coming = self._n_coming + 1 if now - self._arrived_at < CROWDING_SECONDS else 1
        self._arrived_at = now
        self._n_quiet = 0

    async def wait(self, caller: str) -> None:
        """Returns when it is this caller's turn: at once where nobody else begins."""
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            self._n_rounds = 0
            loop.call_soon(self._end_round)
            if self._n_coming <= CROWD:
                return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(waiter)
        self.n_waiting += 1
        await waiter

    def _end_round(self) -> None:
        loop = asyncio.get_running_loop()
        self._n_quiet += 1
        self._n_rounds += 1
        if self._n_quiet >= QUIET_ROUNDS:
            self._n_coming = 0
        if self._n_coming > CROWD and self._n_rounds < MOST_ROUNDS:
            loop.call_soon(self._end_round)
            return
        while self._waiting:
            caller, waiters = next(iter(self._waiting.items()))
            waiter = waiters.popleft()
            self.n_waiting -= 1
            if waiters:
                self._waiting.move_to_end(caller)
            else:
                del self._waiting[caller]
            if not waiter.done():  # by its giving up
                waiter.set_result(None)
                self._n_rounds = 0
                loop.call_soon(self._end_round)
                return
        self._is_taken = False
