"""A library from its job: renders what is missing, then finishes each instrument."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.client import Client
from timbrel.library.finish.finisher import ChosenInstrument, Finisher
from timbrel.library.finish.instrument_files import write_sf2
from timbrel.library.finish.manifest import ManifestRow, write_rows, write_table
from timbrel.library.finish.summary import BuildSummary, licence_text, readme_text, summarise
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.job import LibraryJob, check_job
from timbrel.library.plan.notes import PlannedNote, plan_notes
from timbrel.library.render.attempts import Attempt, ChosenNote, choose_attempts
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Progress, Renderer
from timbrel.library.render.source import PATIENCE_SECONDS, ClientSource, NoteSource
from timbrel.library.render.store import NoteStore, note_decoder
from timbrel.library.render.worker_pool import Urgency, WorkerPool, default_threads, done_future
from timbrel.progress import bar
from timbrel_bundle.files import atomic_write

NO_TABLE = "manifest.parquet was not written: pyarrow is not installed (manifest.jsonl holds the same)"


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build. None of them changes a file; `sf2` adds some."""

    sf2: bool = False
    """Also write .sf2 files, if polyphone is there."""

    show_progress: bool = False
    tell: Callable[[str], None] = field(default=lambda message: None)
    """Called with one line for what a person should know at once."""

    patience_seconds: float = PATIENCE_SECONDS
    """How long the server may be away before the job ends, to be continued later."""

    n_threads: int = 0
    """Notes decoded and measured at once; 0: one a core, up to 8."""


def build_library(
    client: Client,
    job: LibraryJob,
    path: str | os.PathLike[str],
    options: BuildOptions | None = None,
    source: NoteSource | None = None,
) -> BuildSummary:
    """Renders a library into a folder. Run again after any interruption, it does only what is missing.

    Args:
        client: asked for the model, the codec and, unless `source` is given, the notes.
        job: what to render.
        path: the folder; it is made, or is this job's already.
        source: where raw notes come from; by default this client, many at once.

    Raises:
        InvalidRequestError: the bundle cannot play this job.
        OtherJobError, LockedError: the folder is somebody else's.
        DiskFullError: no room is left. As with every error, what was rendered is kept.
        TimbrelError, OSError: a note cannot be had or written.
    """
    options = options or BuildOptions()
    check_job(job, client.model())
    folder = LibraryFolder(Path(path))
    with folder.lock():
        folder.claim(job)
        folder.sweep()
        source = source or ClientSource(client, patience_seconds=options.patience_seconds, tell=options.tell)
        with WorkerPool(options.n_threads or default_threads()) as pool:
            return _Build(client, job, folder, options, source, pool).run()


class _Build:
    """One run of one job."""

    def __init__(
        self,
        client: Client,
        job: LibraryJob,
        folder: LibraryFolder,
        options: BuildOptions,
        source: NoteSource,
        pool: WorkerPool,
    ) -> None:
        self._job = job
        self._folder = folder
        self._options = options
        self._source = source
        self._pool = pool
        self._model = client.model()
        decoder = note_decoder(client)
        # While the server is busy with its first notes.
        pool.submit(Urgency.FINISH, decoder.load)
        self._renderer = Renderer(
            job,
            NoteStore(folder.codes),
            folder.measured,
            decoder,
            self._model.sample_rate,
            find_trackers(),
            pool,
        )
        self._finisher = Finisher(job, self._model, folder.path, folder.finished, self._renderer.load)
        self._n_rendered = 0
        self._render_seconds = 0.0

    def run(self) -> BuildSummary:
        start = time.monotonic()
        rows = self._make()
        write_rows(self._folder.manifest, rows)
        notices = [] if write_table(self._folder.table, rows) else [NO_TABLE]
        if self._options.sf2:
            notices += write_sf2(self._folder.path, [voice.slug for voice in self._job.voices])
        summary = summarise(
            str(self._folder.path),
            rows,
            self._n_rendered,
            time.monotonic() - start,
            self._render_seconds,
            notices,
        )
        atomic_write(self._folder.path / "LICENSE", licence_text(self._model))
        atomic_write(self._folder.path / "README.md", readme_text(self._job, self._model, summary))
        return summary

    def _make(self) -> list[ManifestRow]:
        """Renders all notes; an instrument is finished as soon as the last of its own is chosen."""
        notes = list(plan_notes(self._job))
        n_each = len(notes) // len(self._job.voices)
        chosen: list[dict[int, ChosenNote]] = [{} for _ in self._job.voices]
        numbers: list[int] = []
        with (
            _InstrumentWriter(self._finisher, self._pool) as writer,
            closing(choose_attempts(notes, self._job.tries, self._attempt)) as choosing,
        ):
            for index, note in choosing:
                number = index // n_each
                own = chosen[number]
                own[index] = note
                if len(own) == n_each:
                    in_order = [own[place] for place in sorted(own)]
                    writer.begin(
                        self._finisher.instrument(self._job.voices[number], in_order, number * n_each)
                    )
                    numbers.append(number)
            finished = dict(zip(numbers, writer.finish(self._options.show_progress), strict=True))
        return [row for number in sorted(finished) for row in finished[number]]

    def _attempt(
        self, notes: Sequence[PlannedNote], number: int
    ) -> Generator[tuple[int, Attempt], None, None]:
        """Renders what is missing of these and measures all, beside that as far as there is time for it."""
        description = "rendering" if number == 0 else f"attempt {number + 1}"
        with closing(Progress(description, self._options.show_progress)) as progress:
            yield from self._renderer.render(notes, number, self._source, progress)
        self._n_rendered += progress.n_rendered
        self._render_seconds += progress.render_seconds


class _InstrumentWriter:
    """Takes instruments whose notes are all chosen, and hands out their rows once they are files.

    It is used as a context manager, within that of its pool.
    """

    def __init__(self, finisher: Finisher, pool: WorkerPool) -> None:
        self._finisher = finisher
        self._pool = pool
        # One more thread, which only waits: for samples to be written, and for the disk.
        self._committer = ThreadPoolExecutor(1, "timbrel-committer")
        self._samples: list[Sequence[Future[ManifestRow]]] = []
        self._committing: deque[Future[list[ManifestRow]]] = deque()
        self._committed: list[list[ManifestRow]] = []

    def __enter__(self) -> _InstrumentWriter:
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

    def finish(self, show_progress: bool) -> list[list[ManifestRow]]:
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

    def _commit(
        self, instrument: ChosenInstrument, samples: Sequence[Future[ManifestRow]]
    ) -> list[ManifestRow]:
        rows = [sample.result() for sample in samples]
        self._finisher.commit(instrument, rows)
        return rows
