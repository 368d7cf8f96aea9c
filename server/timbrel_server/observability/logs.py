"""The log: plain lines, or one JSON object a line; each tells which request it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from timbrel_server.rpc.call_context import current_request_id

_trace: ContextVar[tuple[str, str]] = ContextVar("trace", default=("", ""))  # its id, and the span's

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request_id"}


def set_trace(trace_id: str, span_id: str) -> None:
    """Makes this task's log lines belong to a span, too: both ids in hexadecimal digits, as OpenTelemetry has
    them."""
    _trace.set((trace_id, span_id))


def set_up_logging(log_format: str, level: str) -> None:
    """Sends the log to the standard error. A log that cannot be written is no reason to fail a call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.raiseExceptions = False


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line: time, level, logger, message, request_id, trace_id and span_id where
    calls are traced, and what the call gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes a line without its end."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_request_id():
            entry["request_id"] = request_id
        trace_id, span_id = _trace.get()
        if trace_id:
            entry.update(trace_id=trace_id, span_id=span_id)
        entry.update({key: value for key, value in vars(record).items() if key not in _PLAIN})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Writes `time LEVEL logger: message [request id]`, or `[request id trace id]`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s%(request_id)s")

    def format(self, record: logging.LogRecord) -> str:
        """Writes a line, and the exception's after it."""
        ids = " ".join(filter(None, (current_request_id(), _trace.get()[0])))
        record.request_id = f" [{ids}]" if ids else ""
        return super().format(record)
