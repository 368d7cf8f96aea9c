"""Work done for somebody who may leave: it ends when they do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

_Result = TypeVar("_Result")


class GoneError(Exception):
    """The caller has closed the connection: nobody waits for an answer."""


async def while_attended(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The work's result. Where the caller leaves before, the work is cancelled; the body must have been read.

    Raises:
        GoneError: the caller has left.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise GoneError
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
