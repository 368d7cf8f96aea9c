"""The log: plain lines, or one JSON object a line; each tells which request it belongs to."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from queue import Full, Queue
from typing import Any, ClassVar

from timbrel_server.rpc.call_context import current_request_id

_trace: ContextVar[tuple[str, str]] = ContextVar("trace", default=("", ""))  # its id, and the span's

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request_id"}


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def set_trace(trace_id: str, span_id: str) -> None:
    """Makes this task's log lines belong to a span, too: both ids in hexadecimal digits, as OpenTelemetry has
    them."""
    _trace.set((trace_id, span_id))


MOST_LINES = 10_000
"""Lines that wait to be written; further ones are dropped and counted."""

GATHER_SECONDS = 0.05
"""Lines that come so soon after others are written together: to wake up who writes costs more than a line."""

WHOLE_BYTES = getattr(select, "PIPE_BUF", 512)
"""A pipe takes so many bytes in one piece; systems other than POSIX's do not say."""

FLUSH_SECONDS = 1.0
"""The time that the last lines have, where nobody reads them."""


def set_up_logging(log_format: str, level: str) -> None:
    """Sends the log to the standard error. A log that cannot be written is no reason to fail a call, nor to
    make one wait."""
    descriptor = sys.stderr.fileno()
    handler = DroppingHandler(descriptor)
    formatter = JsonFormatter() if log_format == "json" else TextFormatter()
    handler.setFormatter(JournalFormatter(formatter) if is_journal(descriptor) else formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.raiseExceptions = False


def is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether what is written there goes to systemd's journal, by the variable that systemd sets."""
    status = os.fstat(descriptor)
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class DroppingHandler(logging.Handler):
    """Writes lines on a thread of its own, and drops what finds no room; the log says how many these were."""

    n_lost: ClassVar[int] = 0
    """Lines of all handlers that were dropped, or could not be written."""

    def __init__(self, descriptor: int) -> None:
        """
        Args:
            descriptor: of the file to write to, which may be a pipe that nobody reads.
        """
        super().__init__()
        self._write: Callable[[bytes], int] = partial(os.write, descriptor)
        if os.name == "nt" and os.isatty(descriptor):  # a console: it has a code page, such a file none
            self._write = open(descriptor, "wb", buffering=0, closefd=False).write  # noqa: SIM115
        self._lines: Queue[str | None] = Queue(MOST_LINES)
        self._closing = threading.Event()
        self._n_dropped = 0  # since this was told last
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Is called with the handler's lock held."""
        try:
            line = self.format(record)  # here, where it is known which call this is
        except Exception:  # its arguments do not fit its words
            DroppingHandler.n_lost += 1
            return
        if self._n_dropped and self._lines.qsize() < MOST_LINES // 2:
            text = "%d lines of the log were dropped: they were not read in time"
            told = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (self._n_dropped,), None)
            self._lines.put_nowait(self.format(told))
            self._n_dropped = 0
        try:
            self._lines.put_nowait(line)
        except Full:
            self._n_dropped += 1
            DroppingHandler.n_lost += 1

    def close(self) -> None:
        """Writes what waits, but waits for no reader who does not come. Called as the interpreter ends."""
        self._closing.set()
        with contextlib.suppress(Full):
            self._lines.put_nowait(None)
            self._thread.join(FLUSH_SECONDS)
        super().close()

    def _write_all(self) -> None:
        lines: list[str | None] = []
        while None not in lines:
            lines = [self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get())
            try:
                for rest in _pieces(line for line in lines if line is not None):
                    while rest:
                        rest = rest[self._write(rest) :]
            except OSError:
                DroppingHandler.n_lost += len(lines)
            self._closing.wait(GATHER_SECONDS)


def _pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """Puts lines together that a pipe takes in one piece: those of several processes do not mix in it."""
    piece = b""
    for line in lines:
        more = f"{line}\n".encode(errors="backslashreplace")
        if piece and len(piece) + len(more) > WHOLE_BYTES:
            yield piece
            piece = b""
        piece += more
    yield piece


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line: time, level, logger, pid, message, request_id, trace_id and span_id
    where calls are traced, and what the call gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes a line without its end."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
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
    """Writes `time LEVEL logger[pid]: message [request id]`, or `[request id trace id]`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s%(request_id)s")

    def format(self, record: logging.LogRecord) -> str:
        """Writes a line, and the exception's after it, indented: nothing that is told can pass for a line."""
        ids = " ".join(filter(None, (current_request_id(), _trace.get()[0])))
        record.request_id = f" [{ids}]" if ids else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(_escaped, super().formatMessage(record))

    def formatException(self, exception: Any) -> str:
        lines = super().formatException(exception).splitlines()
        return "\n".join(f"    {_CONTROL.sub(_escaped, line)}" for line in lines)


class JournalFormatter(logging.Formatter):
    """Writes what another does, with the priority before each line that systemd's journal takes off again."""

    PRIORITIES: ClassVar[Mapping[str, int]] = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Writes the same lines, each with its priority."""
        start = f"<{self.PRIORITIES.get(record.levelname, 6)}>"
        return "\n".join(start + line for line in self._formatter.format(record).split("\n"))
