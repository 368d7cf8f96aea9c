"""Admission: the innermost middleware holds each caller to its share, from before a call's body is read until
its reply is on its way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from timbrel_server.errors import InvalidRequestError
from timbrel_server.limits import BODY_SECONDS, Limits, Quota
from timbrel_server.rpc.call_context import current_account
from timbrel_server.rpc.handlers import Answer, Context, Method, Middleware, receive


class Admission(Middleware):
    """Lets a call in if there is room for it, and only then reads what it asks for.

    Health checks, which strangers may make, are never refused for others': see `Crowd`.
    """

    def __init__(
        self,
        limits: Limits,
        checks: Mapping[str, Callable[[str], None]],
        refusing: Mapping[str, Quota],
        queueing: Mapping[str, Quota],
    ) -> None:
        """
        Args:
            checks: by path, what raises an OverloadedError where whoever calls will be refused in any case.
            refusing: by path, further limits of which each call of a method takes a part, or is refused.
            queueing: likewise; the call waits for its part, and what it brings is not read until then.
        """
        self._limits = limits
        self._checks = checks
        self._refusing = refusing
        self._queueing = queueing

    def around(self, answer: Answer, method: Method) -> Answer:
        if method.is_health_check:
            return self._around_health_check(answer)
        limits, check = self._limits, self._checks.get(method.path)
        refusing, queueing = self._refusing.get(method.path), self._queueing.get(method.path)

        async def admitted(bodies: Any, context: Context) -> None:
            account = current_account()
            if check is not None:
                check(account)
            with contextlib.ExitStack() as places:
                places.enter_context(limits.calls.take(account))
                if refusing is not None:
                    places.enter_context(refusing.take(account))
                if queueing is not None:
                    places.enter_context(await queueing.wait(account))
                request = bodies
                if method.takes_one_request:
                    with await limits.bodies.wait(account):
                        request = await _receive_in_time(context)
                await _write(await answer(request, context), context)

        return admitted

    def _around_health_check(self, answer: Answer) -> Answer:
        async def admitted(_: Any, context: Context) -> None:
            account = current_account()
            async with self._limits.health_bodies.join(account):
                body = await _receive_in_time(context)
            async with self._limits.health_calls.join(account):
                await _write(await answer(body, context), context)

        return admitted


async def _write(reply: Any, context: Context) -> None:
    """Returns once the reply is on its way; None where there is no further one."""
    if reply is not None:
        await context.write(reply)


async def _receive_in_time(context: Context) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS) as limit:
            return await receive(context)
    except TimeoutError:
        if not limit.expired():
            raise
        raise InvalidRequestError([("request", f"did not arrive in {BODY_SECONDS:g} seconds")]) from None
