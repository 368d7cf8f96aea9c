"""Admission: the innermost middleware holds each caller to its share, from before a call's body is read until
its reply is on its way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from timbrel_server.errors import InvalidRequestError, OverloadedError
from timbrel_server.limits import BODY_SECONDS, Limits, Quota
from timbrel_server.rpc.call_context import current_account
from timbrel_server.rpc.call_recorder import CallsInProgress
from timbrel_server.rpc.connections import Connections
from timbrel_server.rpc.handlers import Answer, Context, Method, Middleware, receive

MOST_SENT_AWAY = 64
"""Unfinished health checks of one caller, within FORGET_SECONDS: to send away what comes without pause, on
however many connections, would keep others' checks waiting."""

FORGET_SECONDS = 5.0


class Admission(Middleware):
    """Lets a call in if there is room for it, and only then reads what it asks for.

    Health checks, which strangers may make, are never refused for others': see `Crowd`.
    """

    def __init__(
        self,
        limits: Limits,
        connections: Connections,
        calls: CallsInProgress,
        checks: Mapping[str, Callable[[str], None]],
        refusing: Mapping[str, Quota],
        queueing: Mapping[str, Quota],
    ) -> None:
        """
        Args:
            calls: say when a server that is about to end waits for no more requests.
            checks: by path, what raises an OverloadedError where whoever calls will be refused in any case.
            refusing: by path, further limits of which each call of a method takes a part, or is refused.
            queueing: likewise; the call waits for its part, and what it brings is not read until then.
        """
        self._limits = limits
        self._connections = connections
        self._calls = calls
        self._checks = checks
        self._refusing = refusing
        self._queueing = queueing
        self._n_sent_away: Counter[str] = Counter()  # health checks, by caller

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
                places.enter_context(self._connections.call(context.peer() or ""))
                places.enter_context(limits.calls.take(account))
                if refusing is not None:
                    places.enter_context(refusing.take(account))
                if queueing is not None:
                    places.enter_context(await queueing.wait(account))
                request = bodies
                if method.takes_one_request:
                    with await limits.bodies.wait(account):
                        request = await self._receive_in_time(context)
                await _write(await answer(request, context), context)

        return admitted

    def _around_health_check(self, answer: Answer) -> Answer:
        async def admitted(_: Any, context: Context) -> None:
            account, peer = current_account(), context.peer() or ""
            try:
                async with self._limits.health_bodies.join(account):
                    body = await self._receive_in_time(context)
            except OverloadedError:
                await self._count_sent_away(account, peer)
                raise
            async with self._limits.health_calls.join(account):
                await _write(await answer(body, context), context)

        return admitted

    async def _count_sent_away(self, account: str, peer: str) -> None:
        """Cuts a connection whose caller has too many checks sent away, unless a call is on it, which behind
        a proxy could be somebody else's. Raises CancelledError once it is cut."""
        if self._connections.has_calls(peer):
            return
        self._n_sent_away[account] += 1
        if self._n_sent_away[account] == 1:
            asyncio.get_running_loop().call_later(FORGET_SECONDS, self._n_sent_away.pop, account)
        if self._n_sent_away[account] >= MOST_SENT_AWAY:
            await self._connections.cut(peer)
            raise asyncio.CancelledError

    async def _receive_in_time(self, context: Context) -> bytes:
        try:
            async with asyncio.timeout(BODY_SECONDS) as limit:
                with self._calls.arriving(limit):
                    return await receive(context)
        except TimeoutError:
            if not limit.expired():
                raise
        self._calls.check_open()
        raise InvalidRequestError([("request", f"did not arrive in {BODY_SECONDS:g} seconds")])


async def _write(reply: Any, context: Context) -> None:
    """Returns once the reply is on its way; None where there is no further one."""
    if reply is not None:
        await context.write(reply)
