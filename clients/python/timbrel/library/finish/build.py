"""A library from its job: renders what is missing, then finishes each instrument."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.client import Client
from timbrel.library.finish.finisher import ChosenInstrument, Finisher
from timbrel.library.finish.instrument_files import check_keys
from timbrel.library.finish.manifest import ManifestRow, write_rows, write_table
from timbrel.library.finish.summary import BuildSummary, licence_text, readme_lines, summarise
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.job import LibraryJob, check_job
from timbrel.library.plan.notes import plan_notes
from timbrel.library.render.hold import with_holds
from timbrel.library.render.renderer import ChosenNote, Progress, Renderer
from timbrel.library.render.source import ClientSource, NoteSource
from timbrel.library.render.store import NoteStore, note_decoder
from timbrel.library.render.worker_pool import Urgency, WorkerPool, default_threads, done_future
from timbrel.progress import bar
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents
from timbrel_bundle.files import atomic_write

NO_TABLE = "manifest.parquet was not written: pyarrow is not installed (manifest.jsonl holds the same)"

REMOVED = "removed, since the tuning or the measurements have changed (--sf2 and --chords make them anew): "


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build. None of them changes a sample; `sf2` and `chords` add files."""

    sf2: bool = False
    """Also write .sf2 files."""

    show_progress: bool = False
    n_threads: int = 0
    """Notes decoded and measured at once; 0: one a core, up to 8."""

    chords: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Name -> semitones above the key: also write instruments that play these at each key."""

    tuning: KeyCents | None = None
    """How the keys of all instruments are tuned, as `timbrel.scala.read_tuning` reads it; None: in equal
    temperament. Where they were tuned otherwise before, the files that `sf2` and `chords` added then go."""


def build_library(
    client: Client,
    job: LibraryJob,
    path: str | os.PathLike[str],
    options: BuildOptions | None = None,
    source: NoteSource | None = None,
    *,
    choose_holds: bool = False,
) -> BuildSummary:
    """Renders a library into a folder. Run again after any interruption, it does only what is missing.

    Args:
        client: asked for the model, the codec and, unless `source` is given, the notes.
        job: what to render.
        path: the folder; it is made, or is this job's already.
        source: where raw notes come from; by default this client, many at once.
        choose_holds: whether what dies away is to be held until it has, for `LONGEST_SECONDS` at most: three
            notes of each instrument are listened to first, held as the job has them. A library that was begun
            is held as it was begun.

    Raises:
        InvalidRequestError: the bundle cannot play this job, or the tuning leaves no key, or none a chord.
        OtherJobError, LockedError: the folder is somebody else's.
        DiskFullError: no room is left. As with every error, what was rendered is kept.
        TimbrelError, OSError: a note cannot be had or written.
    """
    options = options or BuildOptions()
    model, folder = client.model(), LibraryFolder(Path(path))
    job = job.filled(model)
    check_job(job, model)
    check_keys(options.tuning or EQUAL_TEMPERAMENT, job.pitches, options.chords)
    with folder.lock():
        folder.sweep()
        if choose_holds and (begun := folder.as_begun(job)) is not None:
            job, choose_holds = begun, False
            check_job(job, model)
        if not choose_holds:
            folder.claim(job)
        source = source or ClientSource(client)
        with WorkerPool(options.n_threads or default_threads()) as pool:
            decoder = note_decoder(client)
            # While the server is busy with its first notes.
            pool.submit(Urgency.FINISH, decoder.load)
            store, rate = NoteStore(folder.codes), model.sample_rate
            renderer = Renderer(job, store, folder.measured, decoder, rate, pool)
            progress = Progress(options.show_progress)
            start = time.monotonic()
            if choose_holds:
                job = with_holds(job, renderer, source, progress, model.seconds_range)
                folder.claim(job)
            slugs = {voice.slug for voice in job.voices}
            extras = folder.extras(slugs)
            folder.tune(options.tuning, slugs)
            finisher = Finisher(
                job,
                model,
                folder.path,
                folder.finished,
                renderer.load,
                options.chords,
                options.sf2,
                options.tuning,
            )
            with (
                _InstrumentWriter(finisher, pool) as writer,
                closing(renderer.choose(list(plan_notes(job)), source, progress)) as notes,
            ):
                rows = _finish(job, notes, writer, options.show_progress)
            write_rows(folder.manifest, rows)
            notices = [*([] if write_table(folder.table, rows) else [NO_TABLE]), *writer.notices]
            if gone := [path.name for path in extras if not path.exists()]:
                notices.append(REMOVED + ", ".join(gone[:5]) + (", ..." if len(gone) > 5 else ""))
            summary = summarise(
                str(folder.path),
                rows,
                progress.n_rendered,
                time.monotonic() - start,
                progress.render_seconds,
                notices,
            )
            atomic_write(folder.path / "LICENSE", licence_text(model))
            readme = "\n".join(readme_lines(job, model, summary, folder)) + "\n"
            atomic_write(folder.path / "README.md", readme)
            return summary


def _finish(
    job: LibraryJob, notes: Iterable[tuple[int, ChosenNote]], writer: _InstrumentWriter, show_progress: bool
) -> list[ManifestRow]:
    """Finishes each instrument as soon as the last of its notes is there; they come in any order, as (place
    in the plan, note)."""
    n_each = job.n_notes_each
    chosen: list[dict[int, ChosenNote]] = [{} for _ in job.voices]
    numbers: list[int] = []
    for place, note in notes:
        number = place // n_each
        own = chosen[number]
        own[place] = note
        if len(own) == n_each:
            writer.begin([own[place] for place in sorted(own)], number * n_each)
            numbers.append(number)
    finished = dict(zip(numbers, writer.finish(show_progress), strict=True))
    return [row for number in sorted(finished) for row in finished[number]]


class _InstrumentWriter(AbstractContextManager["_InstrumentWriter"]):
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
        self.notices: list[str] = []
        """Lines about instrument files that could not be written."""

    def __exit__(self, *_: object) -> None:
        """Drops what has not begun; where all went well there is nothing left."""
        for future in (future for futures in self._samples for future in futures):
            future.cancel()
        self._committer.shutdown(cancel_futures=True)

    def begin(self, notes: Sequence[ChosenNote], first_number: int) -> None:
        """Begins to write an instrument's files; those of one that was finished before stay as they are.
        Raises OSError: one of an instrument begun earlier could not be written."""
        instrument = self._finisher.instrument(notes, first_number)
        kept = self._finisher.kept_rows(instrument)
        write = self._finisher.write_sample
        samples: Sequence[Future[ManifestRow]] = (
            [
                self._pool.submit(Urgency.FINISH, write, instrument, number)
                for number in range(len(instrument.notes))
            ]
            if kept is None
            else [done_future(row) for row in kept]
        )
        self._committing.append(self._committer.submit(self._commit, instrument, samples, kept is None))
        self._samples.append(samples)
        while self._committing and self._committing[0].done():
            self._committed.append(self._committing.popleft().result())

    def finish(self, show_progress: bool) -> list[list[ManifestRow]]:
        """Waits for all files; returns the rows of all instruments, in the order in which they were begun.
        Raises OSError: a file could not be written, or a raw note is damaged."""
        samples = [future for futures in self._samples for future in futures]
        with bar("finishing", len(samples), "note", shown=show_progress) as progress:
            for future in samples:
                future.result()
                progress.update()
        while self._committing:
            self._committed.append(self._committing.popleft().result())
        return self._committed

    def _commit(
        self, instrument: ChosenInstrument, samples: Sequence[Future[ManifestRow]], are_new: bool
    ) -> list[ManifestRow]:
        rows = [sample.result() for sample in samples]
        if are_new:
            self._finisher.commit(instrument, rows)
        # Every time: they follow from the rows, and chords may be asked for later.
        notice = self._finisher.write_instrument(instrument, rows)
        self.notices += [notice] if notice else []
        return rows
