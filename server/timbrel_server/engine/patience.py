"""Waiting for a place rather than failing for want of one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from timbrel_server.errors import OverloadedError

_T = TypeVar("_T")


async def patiently(attempt: Callable[[], _T]) -> _T:
    """What the attempt gives, as soon as it is not refused for overload; its other errors are let through."""
    while True:
        try:
            return attempt()
        except OverloadedError as full:
            await asyncio.sleep(full.retry_seconds * random.uniform(0.5, 1.0))
