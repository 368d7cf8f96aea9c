"""Counts of what became of every call."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

DETAILS_KEY = "grpc-status-details-bin"

FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""A handler of the server's must never answer these."""


REFUSED_STREAM = "RST_STREAM with error code 7"
"""A connection had more streams than the server allows, before its limit was known: one may try again."""

FROM_THE_CALLERS_OWN_GRPC = "Internal error from Core"
"""grpc.aio raises this where it writes to a call that the server has ended already."""


@dataclass
class Tally:
    """Counts. An accepted request is one that was answered, given up by its caller, or lost."""

    answered: int = 0
    given_up: int = 0
    """Cancelled by the caller, or its deadline passed."""

    unanswered: int = 0
    refused: int = 0
    refused_wrong_code: int = 0
    internal_errors: int = 0
    hostile_calls: int = 0
    transport_answers: int = 0
    """Hostile calls that gRPC itself answered, before any handler."""

    connections: int = 0
    """Raw ones, of garbage."""

    killed_clients: int = 0
    slow_notes: int = 0
    batch_items: int = 0
    """Answered to callers who hardly ever read."""

    stuck_batches: int = 0
    """That answered nothing any more."""

    examples: Counter[str] = field(default_factory=Counter)
    """Examples of what was counted as wrong."""

    @property
    def accepted(self) -> int:
        """Requests that the server took on."""
        return self.answered + self.given_up + self.unanswered

    def count_end(
        self, error: grpc.aio.AioRpcError | None, n_replies: int, *, own_doing: bool = False
    ) -> None:
        """A note's call has ended.

        Args:
            own_doing: whether its caller cancelled it, or gave it a deadline.
        """
        if error is None:
            self.answered += 1
            return
        code = error.code()
        if own_doing and code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED):
            self.given_up += 1
            return
        self.count_fault(error)
        if n_replies:
            self._wrong("unanswered", error)
            self.unanswered += 1
        elif REFUSED_STREAM in (error.details() or "") or (
            code is grpc.StatusCode.RESOURCE_EXHAUSTED and has_retry_info(error)
        ):
            self.refused += 1
        else:
            self._wrong("refused", error)
            self.refused_wrong_code += 1

    def count_item(self, code: int, message: str) -> None:
        """An item of a batch was answered: it is never refused, but waits."""
        self.batch_items += 1
        if code:
            self.refused_wrong_code += 1
            self.examples[f"item: {code}: {message[:80]}"] += 1

    def count_batch_end(self, error: grpc.aio.AioRpcError) -> None:
        """A batch's stream was broken off by the server."""
        self.count_fault(error)
        self._wrong("batch", error)
        self.refused_wrong_code += 1

    def count_fault(self, error: grpc.aio.AioRpcError) -> None:
        """Any call has failed: counted where the server's own code did."""
        if error.details() == FROM_THE_CALLERS_OWN_GRPC:
            self.transport_answers += 1
        elif error.code() in FAULTS:
            self._wrong("fault", error)
            self.internal_errors += 1

    def _wrong(self, what: str, error: grpc.aio.AioRpcError) -> None:
        self.examples[f"{what}: {error.code().name}: {(error.details() or '')[:80]}"] += 1


def has_retry_info(error: grpc.aio.AioRpcError) -> bool:
    """Tells whether a status says when to come back."""
    metadata: Any = error.trailing_metadata() or ()
    details = next((value for key, value in metadata if key == DETAILS_KEY), b"")
    status = status_pb2.Status.FromString(details if isinstance(details, bytes) else b"")
    return any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
