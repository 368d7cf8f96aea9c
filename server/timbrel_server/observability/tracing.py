"""Traces: a span for every call. The only module that knows OpenTelemetry.

Names follow its conventions for RPC; what they have no name for is `timbrel.*`. Nothing that a caller says is
among the attributes: neither notes nor tokens, addresses or request ids. The log has the trace's id beside
the request's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from timbrel_server import own_version
from timbrel_server.observability.logs import set_trace
from timbrel_server.rpc.call_context import CallFacts, begin_facts
from timbrel_server.rpc.call_recorder import CallSpan, CallTracer

OWN_NAME = "timbrel"
UNNAMED = "unknown_service"
"""The name that the SDK gives a service that neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES names."""

LAST_WORDS_SECONDS = 3.0
"""A collector has this time to take the last spans when the server ends."""

FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Codes that the conventions count as a server's own errors; the others are the caller's."""


class Tracing(CallTracer):
    """Sends spans to a collector, over OTLP and from a thread of its own. One that is away holds up nothing:
    what does not fit in the bounded queue is dropped.

    What OTEL_* variables say of sampling, propagation, resource, headers, certificates and batches holds.
    """

    def __init__(self, endpoint: str | None) -> None:
        """
        Args:
            endpoint: http://HOST:PORT or https://HOST:PORT; None leaves it to OTEL_EXPORTER_OTLP_ENDPOINT.
        """
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("timbrel_server", own_version())

    def begin(self, service: str, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> CallSpan:
        """Begins the span of a call, within the caller's trace where its metadata tell of one."""
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        name = f"{service}/{method}"
        span = self._tracer.start_span(
            name,
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": name},
        )
        known = span.get_span_context()
        set_trace(trace.format_trace_id(known.trace_id), trace.format_span_id(known.span_id))
        return _Span(span, begin_facts())

    def close(self) -> None:
        """Sends what is left, if the collector takes it soon."""
        sending = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        sending.start()
        sending.join(LAST_WORDS_SECONDS)


class _Span(CallSpan):
    """One span. Its length is told by a clock that does not jump."""

    def __init__(self, span: trace.Span, facts: CallFacts) -> None:
        self._span = span
        self._facts = facts
        self._began, self._since = time.time_ns(), time.monotonic_ns()

    def end(self, code: str) -> None:
        """Ends it with the call's status."""
        self._span.set_attributes({"rpc.response.status_code": code, **_told(self._facts)})
        if code in FAULTS:
            self._span.set_attribute("error.type", code)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end(self._began + time.monotonic_ns() - self._since)


def _told(facts: CallFacts) -> Mapping[str, int | float]:
    found: dict[str, int | float | None] = {
        "timbrel.notes": facts.n_notes,
        "timbrel.frames": facts.n_frames,
        "timbrel.queue_wait_seconds": facts.queue_wait_seconds,
        "timbrel.first_chunk_seconds": facts.first_chunk_seconds,
    }
    return {name: value for name, value in found.items() if value}


def _resource() -> Resource:
    """Names what sends the spans: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over its own name."""
    given = Resource.create()
    own: dict[str, Any] = {}
    if str(given.attributes.get(SERVICE_NAME, UNNAMED)).startswith(UNNAMED):
        own[SERVICE_NAME] = OWN_NAME
    if SERVICE_VERSION not in given.attributes:
        own[SERVICE_VERSION] = own_version()
    return given.merge(Resource(own))
