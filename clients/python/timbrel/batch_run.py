"""Many notes over one stream, for the blocking client: the threads around `timbrel.core.batch`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator

from timbrel.core.batch import Batch, Result
from timbrel.core.request import NoteRequest
from timbrel.errors import TimbrelError, UnavailableError
from timbrel.transport import BatchCall, Transport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Open = Callable[[], Transport]
"""Gives the connection, or says why there is none any more."""


class BatchRun:
    """Sends the requests and hands out their results, once.

    One thread reads the requests, one the replies, gRPC's own sends; who iterates only waits. So neither a
    slow caller nor slow requests keep the server waiting, and Ctrl-C gets through.
    """

    def __init__(self, open_transport: Open, batch: Batch, requests: Iterable[NoteRequest]) -> None:
        self._open_transport = open_transport
        self._batch = batch
        self._requests = iter(requests)
        self._closed = threading.Event()
        # Guards everything below and the batch; told of every change.
        self._changed = threading.Condition()
        self._call: BatchCall | None = None  # the present stream
        self._n_streams = 0
        self._failure: BaseException | None = None  # of the stream: ends all at once
        self._requests_failure: BaseException | None = None  # of the caller's iterable: once all is answered

    def results(self) -> Generator[Result, None, None]:
        """Leaving it early gives the rest up.

        Raises:
            TimbrelError: the stream failed for good.
            Exception: what reading the requests raised, after the results of those before.
        """
        for work in (self._read_requests, self._read_replies):
            threading.Thread(target=work, name="timbrel-batch", daemon=True).start()
        try:
            while (result := self._next_result()) is not None:
                yield result
            if self._requests_failure is not None:
                raise self._requests_failure
        finally:
            self._close()

    def _next_result(self) -> Result | None:
        with self._changed:
            while True:
                if (result := self._batch.next_result()) is not None:
                    self._changed.notify_all()  # there is room again
                    return result
                if self._failure is not None:
                    raise self._failure
                if self._batch.is_finished:
                    return None
                now = time.monotonic()
                self._batch.check(now)
                self._changed.wait(self._batch.seconds_left(now))

    def _close(self) -> None:
        with self._changed:
            self._closed.set()
            if self._call is not None:
                self._call.cancel()
            self._changed.notify_all()

    def _read_requests(self) -> None:
        """A thread's work: never more than there is room for."""
        while self._wait_for_room():
            try:
                request = next(self._requests)
            except BaseException as error:
                with self._changed:
                    self._requests_failure = None if isinstance(error, StopIteration) else error
                    self._batch.end()
                    self._changed.notify_all()
                return
            with self._changed:
                self._batch.add(request, time.monotonic())
                self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        """False where no more is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._batch.has_room or self._closed.is_set())
            return not self._closed.is_set()

    def _read_replies(self) -> None:
        """A thread's work: one stream after the other, until all is answered."""
        try:
            while (delay := self._read_stream()) is not None:
                if self._closed.wait(delay):
                    return
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _read_stream(self) -> float | None:
        """One stream, to its end; returns the seconds until the next, None where none is needed."""
        with self._changed:
            if self._closed.is_set():
                return None
            self._n_streams += 1
            self._batch.open_stream()
            self._call = self._open_transport().generate_batch(self._messages(self._n_streams))
        ended: TimbrelError = UnavailableError("the server ended the stream before all was answered")
        try:
            for response in self._call:
                with self._changed:
                    self._batch.receive(response, time.monotonic())
                    self._changed.notify_all()
        except TimbrelError as error:
            ended = error
        with self._changed:
            self._n_streams += 1  # who still sends on this one stops
            self._changed.notify_all()
            if self._closed.is_set() or self._batch.is_answered:
                return None
            return self._batch.break_off(ended, time.monotonic())

    def _messages(self, stream: int) -> Iterator[pb.GenerateBatchRequest]:
        """What gRPC's thread sends on this stream; its end says that no more will follow."""
        while (message := self._next_message(stream)) is not None:
            yield message

    def _next_message(self, stream: int) -> pb.GenerateBatchRequest | None:
        with self._changed:
            while not (self._closed.is_set() or self._n_streams != stream or self._batch.is_answered):
                now = time.monotonic()
                if (message := self._batch.next_to_send(now)) is not None:
                    return message
                self._changed.wait(self._batch.seconds_until_due(now))
            return None
