"""A library from its job: renders what is missing, then finishes each instrument."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from timbrel.client import Client
from timbrel.errors import TimbrelError
from timbrel.library.codec import decoder_of
from timbrel.library.finish import Finisher
from timbrel.library.folder import LibraryFolder
from timbrel.library.job import LibraryJob, check_job
from timbrel.library.manifest import ManifestRow, write_rows, write_table
from timbrel.library.papers import licence_text, readme_text
from timbrel.library.pitch import find_trackers
from timbrel.library.plan import PlannedNote, plan_notes
from timbrel.library.render import Attempt, ChosenNote, Renderer, settle
from timbrel.library.sf2 import write_sf2
from timbrel.library.source import PATIENCE_SECONDS, ClientSource, NoteSource
from timbrel.library.store import NoteStore
from timbrel.library.summary import LibrarySummary, summarise
from timbrel.progress import bar
from timbrel_bundle.files import atomic_write

MAX_THREADS = 8

NO_TABLE = "manifest.parquet was not written: pyarrow is not installed (manifest.jsonl holds the same)"


class DiskFullError(TimbrelError):
    """There is no room for more; what was done is kept."""


@dataclass(frozen=True)
class BuildOptions:
    """How a library is built; none of it changes the files, but `sf2`, which adds some."""

    sf2: bool = False
    """Also write .sf2 files, if polyphone is there."""

    show_progress: bool = False
    tell: Callable[[str], None] = field(default=lambda message: None)
    """Called with one line for what a person should know at once."""

    patience_seconds: float = PATIENCE_SECONDS
    """How long the server may be away before the job ends, to be continued later."""

    n_threads: int = 0
    """Notes decoded and measured at once; 0: one a core, up to MAX_THREADS."""


def build_library(
    client: Client,
    job: LibraryJob,
    path: str | os.PathLike[str],
    options: BuildOptions | None = None,
    source: NoteSource | None = None,
) -> LibrarySummary:
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
    with _disk_full_said(folder.path), folder.lock():
        folder.claim(job)
        folder.sweep()
        source = source or ClientSource(client, patience_seconds=options.patience_seconds, tell=options.tell)
        return _Build(client, job, folder, options, source).run()


class _Build:
    """One run of one job."""

    def __init__(
        self,
        client: Client,
        job: LibraryJob,
        folder: LibraryFolder,
        options: BuildOptions,
        source: NoteSource,
    ) -> None:
        n_threads = options.n_threads or min(MAX_THREADS, os.cpu_count() or 1)
        self._job = job
        self._folder = folder
        self._options = options
        self._source = source
        self._model = client.model()
        trackers = find_trackers()
        self._renderer = Renderer(
            job,
            NoteStore(folder.codes),
            folder.measured,
            decoder_of(client),
            self._model.sample_rate,
            trackers,
            n_threads,
        )
        self._finisher = Finisher(
            job, self._model, folder.path, folder.finished, self._renderer.load, trackers.name, n_threads
        )
        self._n_rendered = 0
        self._render_seconds = 0.0
        self._rendered_until = 0.0

    def run(self) -> LibrarySummary:
        start = time.monotonic()
        rows = self._finish(settle(list(plan_notes(self._job)), self._job.tries, self._attempt))
        notices = self._write_manifest(rows)
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

    def _attempt(self, notes: Sequence[PlannedNote], number: int) -> list[Attempt]:
        """Renders what is missing of these and measures all, beside that as far as there is time for it."""
        n_there = len(notes) - len(self._renderer.missing(notes, number))
        what = "rendering" if number == 0 else f"attempt {number + 1}"
        with ExitStack() as bars:
            tick = bars.enter_context(self._bar(what, len(notes), n_there))
            start = time.monotonic()

            def count(n_notes: int) -> None:
                self._n_rendered += n_notes
                self._rendered_until = time.monotonic()
                tick(n_notes)

            def listening() -> Callable[[int], object]:
                self._render_seconds += max(0.0, self._rendered_until - start)
                bars.close()
                return bars.enter_context(self._bar("listening", len(notes)))

            return self._renderer.render(notes, number, self._source, count, listening)

    def _finish(self, notes: Sequence[ChosenNote]) -> list[ManifestRow]:
        rows: list[ManifestRow] = []
        waiting = iter(notes)
        with self._bar("finishing", len(notes)) as tick:
            for voice in self._job.voices:
                own = list(islice(waiting, self._job.n_notes // len(self._job.voices)))
                rows += self._finisher.finish(voice, own, len(rows), tick).rows
        return rows

    def _write_manifest(self, rows: Sequence[ManifestRow]) -> list[str]:
        write_rows(self._folder.manifest, rows)
        return [] if write_table(self._folder.table, rows) else [NO_TABLE]

    @contextmanager
    def _bar(self, what: str, total: int, done: int = 0) -> Iterator[Callable[[int], object]]:
        with bar(what, total, "note", shown=self._options.show_progress, initial=done) as progress:
            yield progress.update


@contextmanager
def _disk_full_said(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(
            f"no space is left on the disk of {folder}; what was rendered is kept: make room and run the "
            "same command again to continue"
        ) from error
