"""A library from its job: renders what is missing, then finishes each instrument."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.client import Client
from timbrel.errors import TimbrelError
from timbrel.library.background import Urgency, WorkerPool, usable_cores
from timbrel.library.codec import LibraryCodec
from timbrel.library.finish import Finisher
from timbrel.library.folder import LibraryFolder
from timbrel.library.job import LibraryJob, check_job
from timbrel.library.manifest import ManifestRow, write_rows, write_table
from timbrel.library.papers import licence_text, readme_text
from timbrel.library.pitch import find_trackers
from timbrel.library.plan import PlannedNote, plan_notes
from timbrel.library.render import Attempt, ChosenNote, Progress, Renderer, settle
from timbrel.library.sf2 import write_sf2
from timbrel.library.source import PATIENCE_SECONDS, ClientSource, NoteSource
from timbrel.library.store import NoteStore
from timbrel.library.summary import LibrarySummary, summarise
from timbrel.library.workshop import Workshop
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
        with WorkerPool(options.n_threads or min(MAX_THREADS, usable_cores())) as pool:
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
        codec = LibraryCodec(client)
        # While the server is busy with its first notes.
        pool.submit(Urgency.FINISH, codec.load)
        self._renderer = Renderer(
            job,
            NoteStore(folder.codes),
            folder.measured,
            codec,
            self._model.sample_rate,
            find_trackers(),
            pool,
        )
        self._finisher = Finisher(job, self._model, folder.path, folder.finished, self._renderer.load)
        self._n_rendered = 0
        self._render_seconds = 0.0

    def run(self) -> LibrarySummary:
        start = time.monotonic()
        rows = self._make()
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

    def _make(self) -> list[ManifestRow]:
        """Renders all notes; an instrument is finished as soon as the last of its own is settled."""
        notes = list(plan_notes(self._job))
        n_each = len(notes) // len(self._job.voices)
        settled: list[dict[int, ChosenNote]] = [{} for _ in self._job.voices]
        numbers: list[int] = []
        with (
            Workshop(self._finisher, self._pool) as workshop,
            closing(settle(notes, self._job.tries, self._attempt)) as settling,
        ):
            for index, chosen in settling:
                number = index // n_each
                own = settled[number]
                own[index] = chosen
                if len(own) == n_each:
                    in_order = [own[place] for place in sorted(own)]
                    workshop.begin(
                        self._finisher.instrument(self._job.voices[number], in_order, number * n_each)
                    )
                    numbers.append(number)
            with bar("finishing", len(notes), "note", shown=self._options.show_progress) as progress:
                finished = dict(zip(numbers, workshop.finish(progress.update), strict=True))
        return [row for number in sorted(finished) for row in finished[number]]

    def _attempt(
        self, notes: Sequence[PlannedNote], number: int
    ) -> Generator[tuple[int, Attempt], None, None]:
        """Renders what is missing of these and measures all, beside that as far as there is time for it."""
        what = "rendering" if number == 0 else f"attempt {number + 1}"
        with closing(_Bars(what, self._options.show_progress)) as bars:
            yield from self._renderer.render(notes, number, self._source, bars)
        self._n_rendered += bars.n_rendered
        self._render_seconds += bars.render_seconds

    def _write_manifest(self, rows: Sequence[ManifestRow]) -> list[str]:
        write_rows(self._folder.manifest, rows)
        return [] if write_table(self._folder.table, rows) else [NO_TABLE]


class _Bars(Progress):
    """Shows how far one attempt at some notes has come, and keeps the time that rendering took."""

    def __init__(self, what: str, shown: bool) -> None:
        self._what = what
        self._shown = shown
        self._stack = ExitStack()
        self._start = time.monotonic()
        self._n_notes = 0
        self._n_measured = 0
        self._rendering: Callable[[int], object] = _ignore
        self._listening: Callable[[int], object] = _ignore
        self.n_rendered = 0
        self.render_seconds = 0.0

    def begin(self, n_notes: int, n_there: int) -> None:
        self._n_notes = n_notes
        self._rendering = self._open(self._what, n_there)

    def rendered(self, n_notes: int) -> None:
        self.n_rendered += n_notes
        self.render_seconds = time.monotonic() - self._start
        self._rendering(n_notes)

    def listening(self) -> None:
        self._stack.close()
        self._listening = self._open("listening", self._n_measured)

    def measured(self, n_notes: int) -> None:
        self._n_measured += n_notes
        self._listening(n_notes)

    def close(self) -> None:
        self._stack.close()

    def _open(self, what: str, done: int) -> Callable[[int], object]:
        shown = bar(what, self._n_notes, "note", shown=self._shown, initial=done)
        update: Callable[[int], object] = self._stack.enter_context(shown).update
        return update


def _ignore(n_notes: int) -> None:
    pass


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
