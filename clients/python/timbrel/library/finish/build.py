"""A library from its job: renders what is missing, then finishes each instrument."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.client import Client
from timbrel.library.finish.finisher import Finisher
from timbrel.library.finish.instrument_files import write_sf2
from timbrel.library.finish.instrument_writer import InstrumentWriter
from timbrel.library.finish.manifest import ManifestRow, write_rows, write_table
from timbrel.library.finish.summary import BuildSummary, licence_text, readme_text, summarise
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.job import LibraryJob, check_job
from timbrel.library.plan.notes import PlannedNote, plan_notes
from timbrel.library.render.attempts import Attempt, ChosenNote, choose_attempts
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Progress, Renderer
from timbrel.library.render.source import PATIENCE_SECONDS, ClientSource, NoteSource
from timbrel.library.render.store import LibraryCodec, NoteStore
from timbrel.library.render.worker_pool import Urgency, WorkerPool, usable_cores
from timbrel_bundle.files import atomic_write

MAX_THREADS = 8

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
    """Notes decoded and measured at once; 0: one a core, up to MAX_THREADS."""


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

    def run(self) -> BuildSummary:
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
        """Renders all notes; an instrument is finished as soon as the last of its own is chosen."""
        notes = list(plan_notes(self._job))
        n_each = len(notes) // len(self._job.voices)
        chosen: list[dict[int, ChosenNote]] = [{} for _ in self._job.voices]
        numbers: list[int] = []
        with (
            InstrumentWriter(self._finisher, self._pool) as writer,
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

    def _write_manifest(self, rows: Sequence[ManifestRow]) -> list[str]:
        write_rows(self._folder.manifest, rows)
        return [] if write_table(self._folder.table, rows) else [NO_TABLE]
