"""Around every call: no error leaves without its proper status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_status import rpc_status

from timbrel_server.errors import InternalError, ServiceError, UnavailableError
from timbrel_server.watching.logs import REQUEST_ID_KEY, current_request_id
from timbrel_server.wire.grpc_types import Behaviour, Context, Continuation, Handler, Interceptor
from timbrel_server.wire.handlers import call, is_health_check, wrap

_log = logging.getLogger(__name__)


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


class ErrorInterceptor(Interceptor):
    """Turns what a handler raises into a status.

    What nobody foresaw goes to the log in full; the caller gets an id that is in the log.
    """

    def __init__(self, calls: CallsInProgress) -> None:
        """
        Args:
            calls: counts every call but health checks, whose watchers stay for good.
        """
        self._calls = calls

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method = handler_call_details.method
        counts = not is_health_check(method)

        async def guarded(behaviour: Behaviour, request: Any, context: Context) -> Any:
            try:
                with self._calls.one() if counts else contextlib.nullcontext():
                    return await call(behaviour, request, context)
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except grpc.aio.InternalError:  # from sending a reply: the caller has gone
                raise asyncio.CancelledError from None
            except Exception as error:
                await _abort(context, presentable(error, method))

        return wrap(await continuation(handler_call_details), guarded)


def presentable(error: Exception, method: str) -> ServiceError:
    """The error that a caller may see. One that nobody foresaw goes to the log in full, under an id."""
    if isinstance(error, ServiceError):
        return error
    hidden = InternalError(secrets.token_hex(6))
    _log.error("internal error %s in %s", hidden.error_id, method, exc_info=error)
    return hidden


async def _abort(context: Context, error: ServiceError) -> None:
    status: Any = rpc_status.to_status(error.to_status())
    request_id = (REQUEST_ID_KEY, current_request_id())
    await context.abort(status.code, status.details, (*status.trailing_metadata, request_id))
