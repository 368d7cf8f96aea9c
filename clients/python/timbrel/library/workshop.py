"""Instruments on their way to files, while the notes of others are still being rendered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from timbrel.library.background import Urgency, WorkerPool
from timbrel.library.finish import Finisher, Instrument
from timbrel.library.manifest import ManifestRow

Rows = list[ManifestRow]
Result = TypeVar("Result")


class Workshop:
    """Takes instruments, of which all notes are settled, and hands out their rows once they are files.

    A context manager within that of its pool.
    """

    def __init__(self, finisher: Finisher, pool: WorkerPool) -> None:
        self._finisher = finisher
        self._pool = pool
        # One more thread, which only waits: for samples to be written, and for the disk.
        self._sealer = ThreadPoolExecutor(1, "timbrel-sealer")
        self._samples: list[Sequence[Future[ManifestRow]]] = []
        self._sealing: deque[Future[Rows]] = deque()
        self._sealed: list[Rows] = []

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where all went well there is nothing left to wait for; else what has not begun is dropped."""
        for future in (future for futures in self._samples for future in futures):
            future.cancel()
        self._sealer.shutdown(cancel_futures=True)

    def begin(self, instrument: Instrument) -> None:
        """Begins to write its files; those of an instrument that was finished before stay as they are.

        Raises:
            OSError: one of an instrument begun earlier could not be written.
        """
        kept = self._finisher.kept_rows(instrument)
        if kept is None:
            write = self._finisher.write_sample
            samples = [
                self._pool.submit(Urgency.FINISH, write, instrument, number)
                for number in range(len(instrument.notes))
            ]
            self._sealing.append(self._sealer.submit(self._seal, instrument, samples))
        else:
            samples = [_done(row) for row in kept]
            self._sealing.append(_done(kept))
        self._samples.append(samples)
        while self._sealing and self._sealing[0].done():
            self._sealed.append(self._sealing.popleft().result())

    def finish(self, tick: Callable[[int], object]) -> list[Rows]:
        """The rows of all instruments, in the order in which they were begun.

        Args:
            tick: told of each sample, also of those that were ready before.

        Raises:
            OSError: a file could not be written, or a raw note is damaged.
        """
        for future in (future for futures in self._samples for future in futures):
            future.result()
            tick(1)
        while self._sealing:
            self._sealed.append(self._sealing.popleft().result())
        return self._sealed

    def _seal(self, instrument: Instrument, samples: Sequence[Future[ManifestRow]]) -> Rows:
        rows = [sample.result() for sample in samples]
        self._finisher.seal(instrument, rows)
        return rows


def _done(result: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(result)
    return future
