"""A collector of traces: OTLP over gRPC, as any other, but for keeping what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Received:
    """A span, and what of its resource matters."""

    span: Any
    service: str

    @property
    def attributes(self) -> dict[str, Any]:
        """By name, as plain values."""
        return {
            each.key: getattr(each.value, each.value.WhichOneof("value")) for each in self.span.attributes
        }

    @property
    def is_servers(self) -> bool:
        """Whether it is a call's as its server sees it."""
        return bool(self.span.kind == trace_pb2.Span.SPAN_KIND_SERVER)

    @property
    def is_fault(self) -> bool:
        """Whether it counts as the server's error."""
        return bool(self.span.status.code == trace_pb2.Status.STATUS_CODE_ERROR)

    @property
    def trace_id(self) -> str:
        """In hexadecimal digits."""
        return str(self.span.trace_id.hex())


class TraceCollector(service_grpc.TraceServiceServicer):
    """Listens on a free loopback port; `with` it."""

    def __init__(self) -> None:
        self._received: list[Received] = []
        self._more = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        service_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> TraceCollector:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, context: Any) -> Any:
        """Takes a batch of spans."""
        with self._more:
            for sent in request.resource_spans:
                named = {each.key: each.value.string_value for each in sent.resource.attributes}
                for scope in sent.scope_spans:
                    self._received += [Received(span, named["service.name"]) for span in scope.spans]
            self._more.notify_all()
        return service_pb.ExportTraceServiceResponse()

    @property
    def received(self) -> list[Received]:
        """All so far."""
        with self._more:
            return list(self._received)

    def wait_for(self, wanted: Callable[[Received], bool]) -> Received:
        """The first span that is wanted; fails where none comes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._more:
            while True:
                found = next((each for each in self._received if wanted(each)), None)
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                assert left > 0, f"there came {[each.span.name for each in self._received]}"
                self._more.wait(left)
