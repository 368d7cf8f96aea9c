"""Work that several servers share: each takes what it has room for; what one fails at goes back to all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Name = TypeVar("Name")
Order = TypeVar("Order")


class Pile(Generic[Name, Order]):
    """Named orders, to be taken by any `Share`. Threads may share it."""

    def __init__(self, orders: Iterable[tuple[Name, Order]], most_out: int) -> None:
        """
        Args:
            orders: taken from the front, as they are needed.
            most_out: orders that may be taken and not yet `settled`: bounds what waits for the consumer.
        """
        self._fresh = iter(orders)
        self._returned: deque[tuple[Name, Order]] = deque()
        self._most_out = most_out
        self._n_out = 0
        self._exhausted = False
        self._stopped = False
        self.changed = threading.Condition()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be taken, now or later. `changed` must be held."""
        return self._stopped or (self._exhausted and not self._returned and self._n_out == 0)

    def is_finished(self) -> bool:
        """`finished`, for who does not hold `changed`."""
        with self.changed:
            return self.finished

    def settled(self) -> None:
        """One order was answered, and its answer consumed."""
        with self.changed:
            self._n_out -= 1
            self.changed.notify_all()

    def stop(self) -> None:
        """Ends every share: nothing more is handed out."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()

    def rest(self, seconds: float) -> bool:
        """Waits; returns at once, and True, where all is done meanwhile."""
        deadline = time.monotonic() + seconds
        with self.changed:
            return self.changed.wait_for(lambda: self.finished, max(0.0, deadline - time.monotonic()))

    def draw(self) -> tuple[Name, Order] | None:
        """The next order, if there is one just now. `changed` must be held."""
        if self._n_out >= self._most_out:
            return None
        if self._returned:
            drawn: tuple[Name, Order] | None = self._returned.popleft()
        else:
            drawn = next(self._fresh, None)
            if drawn is None and not self._exhausted:
                self._exhausted = True
                self.changed.notify_all()
        self._n_out += drawn is not None
        return drawn

    def put_back(self, orders: Iterable[tuple[Name, Order]]) -> None:
        """Orders that were drawn and will not be answered."""
        with self.changed:
            before = len(self._returned)
            self._returned.extend(orders)
            self._n_out -= len(self._returned) - before
            self.changed.notify_all()


class Share(Generic[Name, Order]):
    """What one server has taken of a pile, for as long as one connection lasts."""

    def __init__(self, pile: Pile[Name, Order], cautious: bool = False) -> None:
        """`cautious`: take one order only before the first is answered, since the server may not be there."""
        self._pile = pile
        self._cautious = cautious
        self._taken: dict[Name, Order] = {}
        self._closed = False

    def __iter__(self) -> Iterator[tuple[Name, Order]]:
        """Orders, taken as they are iterated over. It waits where others may yet give some back."""
        while (order := self._next()) is not None:
            yield order

    def answered(self, name: Name) -> None:
        """This one is no longer owed."""
        with self._pile.changed:
            del self._taken[name]
            self._cautious = False
            self._pile.changed.notify_all()

    def close(self) -> None:
        """Takes no more; all that is still owed is for others to take."""
        with self._pile.changed:
            self._closed = True
            owed, self._taken = self._taken, {}
            self._pile.put_back(owed.items())

    def _next(self) -> tuple[Name, Order] | None:
        with self._pile.changed:
            while not (self._closed or self._pile.finished):
                drawn = None if self._cautious and self._taken else self._pile.draw()
                if drawn is not None:
                    self._taken[drawn[0]] = drawn[1]
                    return drawn
                if not self._pile.finished:
                    self._pile.changed.wait()
            return None
