"""A client belongs to the process that made it."""

from __future__ import annotations

import os


class ForkGuard:
    """Made where the client is made; asked wherever it is used."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that made it, and no forked child of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """
        Raises:
            RuntimeError: this is a forked child; its parent's connections and locks are of no use here.
        """
        if not self.is_at_home:
            raise RuntimeError(
                f"this client was made by process {self._pid} and cannot be used in a forked child of it"
                f" (process {os.getpid()}): make clients after the fork, not before, or have multiprocessing"
                " start its processes by 'spawn'"
            )
