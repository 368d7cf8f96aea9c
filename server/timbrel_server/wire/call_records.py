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
from timbrel_server.wire.grpc_types import Answer, Context
from timbrel_server.wire.interceptors import Guard, Method

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


class CallRecorder(Guard):
    """The outermost: gives each call its request id, and notes how it ended."""

    def __init__(self, observer: CallObserver | None, tracer: CallTracer | None = None) -> None:
        """
        Args:
            tracer: follows all calls but health checks.
        """
        self._observer = observer
        self._tracer = tracer

    def around(self, answer: Answer, method: Method) -> Answer:
        _, service, name = method.path.split("/", 2)
        level = logging.DEBUG if method.is_health_check else logging.INFO
        tracer = None if method.is_health_check else self._tracer

        async def recorded(request: Any, context: Context) -> Any:
            metadata: Any = context.invocation_metadata() or ()
            context.set_trailing_metadata(((REQUEST_ID_KEY, begin_request(_given_request_id(metadata))),))
            span = tracer.begin(service, name, metadata) if tracer is not None else None
            record = _Record(self._observer, service, name, method.kind)
            code = "UNKNOWN"
            try:
                reply = await answer(request, context)
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

        return recorded


class _Record:
    """One call, from now on."""

    def __init__(self, observer: CallObserver | None, service: str, method: str, kind: str) -> None:
        self._observer = observer
        self._of = (service, method, kind)
        self._began = time.monotonic()
        if observer is not None:
            observer.call_began(*self._of)

    def end(self, code: str, level: int) -> None:
        """Notes that it has ended."""
        seconds = time.monotonic() - self._began
        if self._observer is not None:
            self._observer.call_ended(*self._of, code, seconds)
        if _log.isEnabledFor(level):
            service, method, _ = self._of
            caller = current_caller()
            facts = {
                "service": service,
                "method": method,
                "code": code,
                "seconds": round(seconds, 6),
                "caller": caller,
            }
            _log.log(level, "%s %s in %.3f s for %s", method, code, seconds, caller, extra=facts)


def _given_request_id(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    given = next((value for key, value in metadata if key == REQUEST_ID_KEY), "")
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
