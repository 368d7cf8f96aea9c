"""Rendering a source into a library, over several processes, continuing where an earlier run stopped."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.library.layout import FORMAT, VERSION
from timbrel_training.notes.library.merge import Merger
from timbrel_training.notes.library.part import PartFiles, render_part
from timbrel_training.notes.library.summary import LibrarySummary
from timbrel_training.notes.note import Source, SourceError
from timbrel_training.notes.split import SplitRule

PLAN_FILE = "plan.json"


def render_library(
    source: Source,
    path: str | Path,
    jobs: int = 2,
    *,
    rule: SplitRule | None = None,
    cleaner: Cleaner | None = None,
    progress: bool = False,
) -> LibrarySummary:
    """Renders all notes of a source into the library folder `path`, which appears only when it is complete.

    Unfinished work lies beside it in `<path>.partial` and is taken up by the next call with an equal source.

    Args:
        source: where the notes come from.
        path: the folder to make; its parent is made as needed.
        jobs: worker processes.
        rule: what to hold out; the default rule if None.
        cleaner: what counts as silent or clipped; the default thresholds if None.
        progress: whether to show a progress bar on stderr.

    Raises:
        SourceError: the source cannot be read, has no usable note, or `path` exists.
    """
    path, cleaner = Path(path), cleaner or Cleaner()
    if path.exists():
        raise SourceError(f"{path}: exists already; remove it or choose another folder")
    work = path.with_name(path.name + ".partial")
    _begin(work, source, cleaner)
    parts = [PartFiles(work, number) for number in range(len(source.groups()))]
    try:
        _render_missing(source, parts, cleaner, jobs, progress)
    except SourceError:
        shutil.rmtree(work)  # what cannot be read will not be continued
        raise
    return _finish(source, parts, work, path, rule or SplitRule(), cleaner)


def _begin(work: Path, source: Source, cleaner: Cleaner) -> None:
    """Makes the work folder, or keeps it if it was begun for equal notes."""
    plan = {
        "format": FORMAT,
        "version": VERSION,
        "source": source.name,
        "settings": dict(source.settings()),
        "silence_peak": cleaner.silence_peak,
        "clip_peak": cleaner.clip_peak,
    }
    text = json.dumps(plan, indent=2)
    plan_file = work / PLAN_FILE
    if plan_file.is_file() and plan_file.read_text() == text:
        return
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    plan_file.write_text(text)


def _render_missing(
    source: Source, parts: list[PartFiles], cleaner: Cleaner, jobs: int, progress: bool
) -> None:
    groups = source.groups()
    missing = [(groups[part.number], part) for part in parts if not part.rows.exists()]
    task = partial(_render_one, source, cleaner)
    with _mapper(min(jobs, len(missing))) as run:
        for _ in tqdm(run(task, missing), total=len(missing), unit="group", disable=not progress):
            pass


def _render_one(source: Source, cleaner: Cleaner, work: tuple[str, PartFiles]) -> None:
    group, files = work
    render_part(source, group, files, cleaner)


@contextmanager
def _mapper(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    if jobs <= 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool.imap_unordered


def _finish(
    source: Source, parts: list[PartFiles], work: Path, path: Path, rule: SplitRule, cleaner: Cleaner
) -> LibrarySummary:
    result = work / "result"
    result.mkdir(exist_ok=True)
    merger = Merger(result, rule, cleaner)
    merger.merge(parts)
    summary = merger.finish(source)
    if not summary.n_notes:
        shutil.rmtree(work)
        raise SourceError(f"no usable note in {source.name}: {'; '.join(summary.lines()[1:2])}")
    result.rename(path)
    shutil.rmtree(work)
    return summary
