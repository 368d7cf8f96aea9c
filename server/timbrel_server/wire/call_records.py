"""What is noted of every call: a line in the log, and its part of the metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from timbrel_server.access.caller import current_caller
from timbrel_server.watching.logs import REQUEST_ID_KEY, begin_request
from timbrel_server.wire.grpc_types import Behaviour, Context, Continuation, Handler, Interceptor
from timbrel_server.wire.handlers import call, is_health_check, kind_of, wrap

_log = logging.getLogger("timbrel_server.calls")

OVERDUE_SECONDS = 0.001
"""A call that is cut with less than this left to its deadline was cut by it."""


class CallObserver(Protocol):
    """Who wants to know of calls. Called on the event loop."""

    def call_began(self, service: str, method: str, kind: str) -> None:
        """A call is being answered. `kind`: "unary_stream", ..."""

    def call_ended(self, service: str, method: str, kind: str, code: str, seconds: float) -> None:
        """It has ended, with this status: "OK", "NOT_FOUND", ..."""


class CallSpan(Protocol):
    """One call of a trace. Called on the event loop."""

    def end(self, code: str) -> None:
        """The call has ended, with this status: "OK", "NOT_FOUND", ..."""


class CallTracer(Protocol):
    """Who follows calls from one service to the next. Called on the event loop."""

    def begin(self, service: str, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> CallSpan:
        """A call is being answered, in this task and its children; its metadata may tell of its trace."""
        ...


class CallRecorder(Interceptor):
    """The outermost: gives each call its request id, and notes how it ended."""

    def __init__(self, observer: CallObserver | None, tracer: CallTracer | None = None) -> None:
        """
        Args:
            tracer: follows all calls but health checks.
        """
        self._observer = observer
        self._tracer = tracer

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        _, service, method = handler_call_details.method.split("/", 2)
        record = _Record(self._observer, service, method, kind_of(handler))
        given = _given_request_id(handler_call_details)
        is_check = is_health_check(handler_call_details.method)
        level = logging.DEBUG if is_check else logging.INFO
        tracer = None if is_check else self._tracer
        metadata: Any = handler_call_details.invocation_metadata or ()

        async def recorded(behaviour: Behaviour, request: Any, context: Context) -> Any:
            context.set_trailing_metadata(((REQUEST_ID_KEY, begin_request(given)),))
            span = tracer.begin(service, method, metadata) if tracer is not None else None
            record.begin()
            code = "UNKNOWN"
            try:
                reply = await call(behaviour, request, context)
                code = "OK"
                return reply
            except grpc.aio.AbortError:
                code = _code_name(context)
                raise
            except asyncio.CancelledError:
                code = _cut_by(context)
                raise
            finally:
                record.end(code, level)
                if span is not None:
                    span.end(code)

        return wrap(handler, recorded)


class _Record:
    """One call."""

    def __init__(self, observer: CallObserver | None, service: str, method: str, kind: str) -> None:
        self._observer = observer
        self._of = (service, method, kind)
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.monotonic()
        if self._observer is not None:
            self._observer.call_began(*self._of)

    def end(self, code: str, level: int) -> None:
        seconds = time.monotonic() - self._began
        if self._observer is not None:
            self._observer.call_ended(*self._of, code, seconds)
        if _log.isEnabledFor(level):
            service, method, _ = self._of
            facts = {
                "service": service,
                "method": method,
                "code": code,
                "seconds": round(seconds, 6),
                "caller": current_caller(),
            }
            _log.log(level, "%s %s in %.3f s for %s", method, code, seconds, current_caller(), extra=facts)


def _given_request_id(details: grpc.HandlerCallDetails) -> str:
    metadata: Any = details.invocation_metadata
    given = next((value for key, value in metadata or () if key == REQUEST_ID_KEY), "")
    return given if isinstance(given, str) else ""


def _code_name(context: Context) -> str:
    """Of the status that a call was aborted with: gRPC keeps it as a number or as a StatusCode."""
    code: Any = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((known.name for known in grpc.StatusCode if known.value[0] == code), "UNKNOWN")


def _cut_by(context: Context) -> str:
    """Why a call was cut short: its deadline, or its caller."""
    left: Any = context.time_remaining()
    return "DEADLINE_EXCEEDED" if left is not None and left < OVERDUE_SECONDS else "CANCELLED"
