"""The writer of instruments, which works while the notes of others are still being rendered."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from timbrel.library.finish.finisher import ChosenInstrument, Finisher
from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.render.worker_pool import Urgency, WorkerPool, done_future
from timbrel.progress import bar

Rows = list[ManifestRow]


class InstrumentWriter:
    """Takes instruments whose notes are all chosen, and hands out their rows once they are files.

    It is used as a context manager, within that of its pool.
    """

    def __init__(self, finisher: Finisher, pool: WorkerPool) -> None:
        self._finisher = finisher
        self._pool = pool
        # One more thread, which only waits: for samples to be written, and for the disk.
        self._committer = ThreadPoolExecutor(1, "timbrel-committer")
        self._samples: list[Sequence[Future[ManifestRow]]] = []
        self._committing: deque[Future[Rows]] = deque()
        self._committed: list[Rows] = []

    def __enter__(self) -> InstrumentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Drops what has not begun; where all went well there is nothing left."""
        for future in (future for futures in self._samples for future in futures):
            future.cancel()
        self._committer.shutdown(cancel_futures=True)

    def begin(self, instrument: ChosenInstrument) -> None:
        """Begins to write an instrument's files; those of one that was finished before stay as they are.

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
            self._committing.append(self._committer.submit(self._commit, instrument, samples))
        else:
            samples = [done_future(row) for row in kept]
            self._committing.append(done_future(kept))
        self._samples.append(samples)
        while self._committing and self._committing[0].done():
            self._committed.append(self._committing.popleft().result())

    def finish(self, show_progress: bool) -> list[Rows]:
        """Waits for all files; returns the rows of all instruments, in the order in which they were begun.

        Raises:
            OSError: a file could not be written, or a raw note is damaged.
        """
        samples = [future for futures in self._samples for future in futures]
        with bar("finishing", len(samples), "note", shown=show_progress) as progress:
            for future in samples:
                future.result()
                progress.update()
        while self._committing:
            self._committed.append(self._committing.popleft().result())
        return self._committed

    def _commit(self, instrument: ChosenInstrument, samples: Sequence[Future[ManifestRow]]) -> Rows:
        rows = [sample.result() for sample in samples]
        self._finisher.commit(instrument, rows)
        return rows
