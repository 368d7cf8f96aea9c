"""The outermost middleware: gives every call an id, a status, a line in the log, metrics and a span."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import grpc
from grpc_status import rpc_status

from timbrel_server.errors import ServiceError, UnavailableError, presentable
from timbrel_server.rpc import call_context
from timbrel_server.rpc.connections import Connections
from timbrel_server.rpc.handlers import Answer, Context, Method, Middleware

_log = logging.getLogger("timbrel_server.calls")

OVERDUE_SECONDS = 0.001
"""A call that is cut with less than this left to its deadline was cut by it."""


QUIET_SECONDS = 0.1
"""No call came for so long: hardly any comes in the moment at which gRPC stops."""

MOST_LOOKS = 10

ARRIVAL_SECONDS = 1.0
"""A request that is on its way has this time to arrive once no call may begin any more."""


class CallObserver(Protocol):
    """Is told of calls, on the event loop."""

    def call_began(self, service: str, method: str, kind: str) -> None:
        """A call is being answered. `kind`: "unary_stream", ..."""

    def call_ended(self, service: str, method: str, kind: str, code: str, seconds: float) -> None:
        """It has ended, with this status: "OK", "NOT_FOUND", ..."""


class CallSpan(Protocol):
    """One call of a trace. Called on the event loop."""

    def end(self, code: str) -> None:
        """The call has ended, with this status: "OK", "NOT_FOUND", ..."""


class CallTracer(Protocol):
    """Follows calls from one service to the next. Called on the event loop."""

    def begin(self, service: str, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> CallSpan:
        """A call is being answered, in this task and its children; its metadata may tell of its trace."""
        ...


class CallsInProgress:
    """Counts calls, so that a server can begin no more and wait for the last to end."""

    def __init__(self) -> None:
        self._closed = False
        self.n = 0
        """How many there are that the end of the server waits for."""
        self._n_refused = 0
        self._arriving: set[asyncio.Timeout] = set()
        self._none = asyncio.Event()
        self._none.set()
        self.are_cut = False
        """Whether those that end from now on before they are answered are cut by the server."""

    @contextlib.contextmanager
    def one(self, *, is_waited_for: bool = True) -> Iterator[None]:
        """Counts a call for as long as the block runs, or lets it in uncounted, where nobody is to wait for
        its end. Raises UnavailableError once closed."""
        self.check_open()
        if not is_waited_for:
            yield
            return
        self.n += 1
        self._none.clear()
        try:
            yield
        finally:
            self.n -= 1
            if self.n == 0:
                self._none.set()

    def check_open(self) -> None:
        """Counts a refusal, and raises UnavailableError, once closed."""
        if self._closed:
            self._n_refused += 1
            raise UnavailableError("the server is shutting down")

    def close(self) -> None:
        """Lets no call begin any more.

        gRPC's own `stop` would cut calls that have just come with CANCELLED, which few clients try again.
        """
        self._closed = True
        for limit in self._arriving:
            self._hurry(limit)

    @contextlib.contextmanager
    def arriving(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Once closed, has a call's request, which is awaited while the block runs, arrive soon: who sends
        none holds up nobody.

        Args:
            limit: of the waiting.
        """
        self._arriving.add(limit)
        if self._closed:
            self._hurry(limit)
        try:
            yield
        finally:
            self._arriving.discard(limit)

    def _hurry(self, limit: asyncio.Timeout) -> None:
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + ARRIVAL_SECONDS)

    async def wait_for_none(self) -> None:
        """Returns once no call is in progress."""
        await self._none.wait()

    async def wait_for_quiet(self) -> None:
        """Returns once closed doors have kept callers away for a moment, or have been shown for long."""
        for _ in range(MOST_LOOKS):
            n_refused = self._n_refused
            await asyncio.sleep(QUIET_SECONDS)
            if n_refused == self._n_refused:
                return


class CallRecorder(Middleware):
    """Gives each call its request id, turns what its handler raises into a status, and notes how it ended."""

    def __init__(
        self,
        calls: CallsInProgress,
        connections: Connections,
        observer: CallObserver | None,
        tracer: CallTracer | None = None,
    ) -> None:
        """
        Args:
            calls: counts every call but health checks, whose watchers stay for good. Those of reflection,
                which tools keep open, are refused as others are, and not waited for.
            tracer: follows the same calls.
        """
        self._calls = calls
        self._connections = connections
        self._observer = observer
        self._tracer = tracer

    def around(self, answer: Answer, method: Method) -> Answer:
        _, service, name = method.path.split("/", 2)
        level = logging.DEBUG if method.is_health_check else logging.INFO
        tracer = None if method.is_health_check else self._tracer
        counted: Callable[[], contextlib.AbstractContextManager[None]] = (
            contextlib.nullcontext
            if method.is_health_check
            else functools.partial(self._calls.one, is_waited_for=not method.is_reflection)
        )

        async def recorded(request: Any, context: Context) -> None:
            if self._connections.is_cut(context.peer() or ""):
                raise asyncio.CancelledError  # before it costs anything: there may be hundreds
            metadata: Any = context.invocation_metadata() or ()
            request_id = call_context.begin_request(_given_request_id(metadata))
            context.set_trailing_metadata(((call_context.REQUEST_ID_KEY, request_id),))
            span = tracer.begin(service, name, metadata) if tracer is not None else None
            began, code = time.perf_counter(), "UNKNOWN"
            if self._observer is not None:
                self._observer.call_began(service, name, method.kind)
            try:
                try:
                    with counted():
                        await answer(request, context)
                    # A stream that is cut looks to who reads it as one whose caller has no more to say.
                    was_cut = self._calls.are_cut and not method.takes_one_request
                    code = "UNAVAILABLE" if was_cut else "OK"
                except (grpc.aio.AbortError, asyncio.CancelledError):
                    raise
                except grpc.aio.InternalError:  # from sending a reply: the caller has gone
                    raise asyncio.CancelledError from None
                except Exception as error:
                    if self._calls.are_cut and _is_of_grpc(error):  # which cancels a call a little later
                        raise asyncio.CancelledError from None
                    await self._abort(context, presentable(error, method.path))
            except grpc.aio.AbortError:
                code = _code_name(context)
                raise
            except asyncio.CancelledError:
                code = "UNAVAILABLE" if self._calls.are_cut else _cut_by(context)
                raise
            finally:
                seconds = time.perf_counter() - began
                if self._observer is not None:
                    self._observer.call_ended(service, name, method.kind, code, seconds)
                _log_call(level, service, name, code, seconds)
                if span is not None:
                    span.end(code)

        return recorded

    async def _abort(self, context: Context, error: ServiceError) -> None:
        status: Any = rpc_status.to_status(error.to_status())
        request_id = (call_context.REQUEST_ID_KEY, call_context.current_request_id())
        try:
            await context.abort(status.code, status.details, (*status.trailing_metadata, request_id))
        except grpc.aio.InternalError:  # a reply that its caller does not read is in the way of the status
            await self._connections.cut(context.peer() or "")
            raise asyncio.CancelledError from None


def _log_call(level: int, service: str, method: str, code: str, seconds: float) -> None:
    if not _log.isEnabledFor(level):
        return
    caller = call_context.current_caller()
    facts = {
        "service": service,
        "method": method,
        "code": code,
        "seconds": round(seconds, 6),
        "caller": caller,
    }
    _log.log(level, "%s %s in %.3f s for %s", method, code, seconds, caller, extra=facts)


def _given_request_id(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    given = next((value for key, value in metadata if key == call_context.REQUEST_ID_KEY), "")
    return given if isinstance(given, str) else ""


def _is_of_grpc(error: Exception) -> bool:
    """Whether gRPC has raised it, also within the tasks of a stream, and nobody else anything beside it."""
    return ExceptionGroup("", [error]).split(grpc.aio.BaseError)[1] is None


def _code_name(context: Context) -> str:
    """Returns the code that a call was aborted with: gRPC keeps it as a number or as a StatusCode."""
    code: Any = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((known.name for known in grpc.StatusCode if known.value[0] == code), "UNKNOWN")


def _cut_by(context: Context) -> str:
    """Says why a call was cut short: by its deadline, or by its caller."""
    left: Any = context.time_remaining()
    return "DEADLINE_EXCEEDED" if left is not None and left < OVERDUE_SECONDS else "CANCELLED"
