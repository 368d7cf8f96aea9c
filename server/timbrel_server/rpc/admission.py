"""Admission: the innermost middleware holds each caller to its share, then takes a call's body in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from timbrel_server.errors import InvalidRequestError
from timbrel_server.limits import BODY_SECONDS, Limits, Quota
from timbrel_server.rpc.call_context import current_account
from timbrel_server.rpc.handlers import Answer, Context, Method, Middleware, receive


class Admission(Middleware):
    """Lets a call in if there is room for it, and only then reads what it asks for.

    Health checks, which strangers may make, are never refused for others': see `Crowd`.
    """

    def __init__(self, limits: Limits, by_path: Mapping[str, Quota]) -> None:
        """
        Args:
            by_path: further limits, of which calls of a method take one part each.
        """
        self._limits = limits
        self._by_path = by_path

    def around(self, answer: Answer, method: Method) -> Answer:
        if method.is_health_check:
            return self._around_health_check(answer)
        limits, of_method = self._limits, self._by_path.get(method.path)

        async def admitted(bodies: Any, context: Context) -> Any:
            account = current_account()
            with contextlib.ExitStack() as places:
                places.enter_context(limits.calls.take(account))
                if of_method is not None:
                    places.enter_context(of_method.take(account))
                request = bodies
                if method.takes_one_request:
                    with await limits.bodies.wait(account):
                        request = await _receive_in_time(context)
                return await answer(request, context)

        return admitted

    def _around_health_check(self, answer: Answer) -> Answer:
        async def admitted(_: Any, context: Context) -> Any:
            account = current_account()
            async with self._limits.health_bodies.join(account):
                body = await _receive_in_time(context)
            async with self._limits.health_calls.join(account):
                return await answer(body, context)

        return admitted


async def _receive_in_time(context: Context) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS) as limit:
            return await receive(context)
    except TimeoutError:
        if not limit.expired():
            raise
        raise InvalidRequestError([("request", f"did not arrive in {BODY_SECONDS:g} seconds")]) from None
