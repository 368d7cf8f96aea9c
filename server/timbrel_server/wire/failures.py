"""No error leaves a call without its proper status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import Any

import grpc
from grpc_status import rpc_status

from timbrel_server.errors import InternalError, ServiceError
from timbrel_server.watching.logs import REQUEST_ID_KEY, current_request_id
from timbrel_server.wire.calls_in_progress import CallsInProgress
from timbrel_server.wire.grpc_types import Answer, Context
from timbrel_server.wire.interceptors import Guard, Method

_log = logging.getLogger(__name__)


class FailureGuard(Guard):
    """Turns what a handler raises into a status.

    What nobody foresaw goes to the log in full; the caller gets an id that is in the log.
    """

    def __init__(self, calls: CallsInProgress) -> None:
        """
        Args:
            calls: counts every call but health checks, whose watchers stay for good.
        """
        self._calls = calls

    def around(self, answer: Answer, method: Method) -> Answer:
        counts = not method.is_health_check

        async def guarded(request: Any, context: Context) -> Any:
            try:
                with self._calls.one() if counts else contextlib.nullcontext():
                    return await answer(request, context)
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except grpc.aio.InternalError:  # from sending a reply: the caller has gone
                raise asyncio.CancelledError from None
            except Exception as error:
                await _abort(context, presentable(error, method.path))

        return guarded


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
