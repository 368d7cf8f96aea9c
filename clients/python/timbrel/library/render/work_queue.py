"""A queue that several servers share: each leases what it has room for; what one fails at goes back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Name = TypeVar("Name")
Order = TypeVar("Order")


class WorkQueue(Generic[Name, Order]):
    """Named orders, to be taken by any `Lease`. Threads may share it."""

    def __init__(self, orders: Iterable[tuple[Name, Order]], max_out: int) -> None:
        """Has at most `max_out` orders out that are not yet `task_done`: it bounds what waits for those."""
        self._fresh = iter(orders)
        self._returned: deque[tuple[Name, Order]] = deque()
        self._max_out = max_out
        self._n_out = 0
        self._exhausted = False
        self._stopped = False
        self.changed = threading.Condition()
        """Whoever holds it may call every method: its lock is one that the same thread may take again."""

    def is_finished(self) -> bool:
        """Tells whether nothing is left to be taken, now or later."""
        with self.changed:
            return self._stopped or (self._exhausted and not self._returned and self._n_out == 0)

    def is_stopped(self) -> bool:
        """Tells whether `stop` was called."""
        return self._stopped

    def task_done(self) -> None:
        """Counts one order as answered, and its answer as consumed."""
        with self.changed:
            self._n_out -= 1
            self.changed.notify_all()

    def stop(self) -> None:
        """Ends every lease: nothing more is handed out."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits for so long; returns True at once where all is done meanwhile."""
        with self.changed:
            return self.changed.wait_for(self.is_finished, seconds)

    def take(self) -> tuple[Name, Order] | None:
        """Hands out the next order, if there is one just now. `changed` must be held."""
        if self._n_out >= self._max_out:
            return None
        if self._returned:
            taken: tuple[Name, Order] | None = self._returned.popleft()
        else:
            taken = next(self._fresh, None)
            if taken is None and not self._exhausted:
                self._exhausted = True
                self.changed.notify_all()
        self._n_out += taken is not None
        return taken

    def put_back(self, orders: Iterable[tuple[Name, Order]]) -> None:
        """Takes back orders that will not be answered by whoever took them."""
        with self.changed:
            before = len(self._returned)
            self._returned.extend(orders)
            self._n_out -= len(self._returned) - before
            self.changed.notify_all()


class Lease(Generic[Name, Order]):
    """The orders that one server has taken of a queue, for as long as one connection lasts."""

    def __init__(self, queue: WorkQueue[Name, Order], probing: bool = False) -> None:
        """`probing`: takes a single order before the first is answered, since the server may not be there."""
        self._queue = queue
        self._probing = probing
        self._taken: dict[Name, Order] = {}
        self._closed = False

    def __iter__(self) -> Iterator[tuple[Name, Order]]:
        """Yields orders, taken as they are iterated over. It waits where others may yet give some back."""
        while (order := self._next()) is not None:
            yield order

    def complete(self, name: Name) -> None:
        """Counts an order as answered: it is no longer owed."""
        with self._queue.changed:
            del self._taken[name]
            self._probing = False
            self._queue.changed.notify_all()

    def close(self) -> None:
        """Takes no more; all that is still owed is for others to take."""
        with self._queue.changed:
            self._closed = True
            owed, self._taken = self._taken, {}
            self._queue.put_back(owed.items())

    def _next(self) -> tuple[Name, Order] | None:
        with self._queue.changed:
            while not (self._closed or self._queue.is_finished()):
                taken = None if self._probing and self._taken else self._queue.take()
                if taken is not None:
                    self._taken[taken[0]] = taken[1]
                    return taken
                if not self._queue.is_finished():
                    self._queue.changed.wait()
            return None
