"""Rendering a source into a library, over several processes, continuing where an earlier run stopped."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soxr
from numpy.typing import NDArray
from tqdm import tqdm

from timbrel_training.notes.cleaning import Cleaner, audio_digest
from timbrel_training.notes.dataset import (
    AUDIO_FILE,
    FORMAT,
    HEADER_FILE,
    INDEX_FILE,
    MAX_NAME,
    PART_ROW,
    ROW,
    VERSION,
)
from timbrel_training.notes.note import Note, Source, SourceError
from timbrel_training.notes.split import Split, SplitRule


@dataclass(frozen=True)
class DatasetSummary:
    """Counts of one finished library."""

    n_notes: int
    n_instruments: int
    seconds: float  # of audio
    n_cut: int  # notes still sounding where their audio ends
    dropped: Mapping[str, int]  # reason -> notes
    splits: Mapping[str, int]  # split -> notes

    def lines(self) -> list[str]:
        """The summary as lines to print."""
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items()) or "none"
        splits = ", ".join(f"{count} {name}" for name, count in self.splits.items())
        return [
            f"{self.n_notes} notes of {self.n_instruments} instruments, {self.seconds / 3600:.2f} hours",
            f"dropped: {dropped}",
            f"split: {splits}",
            f"cut while still sounding: {self.n_cut}",
        ]


INT16_MAX = 32767


@dataclass(frozen=True)
class PartFiles:
    """Where the part of group number `number` lies."""

    folder: Path
    number: int

    @property
    def audio(self) -> Path:
        return self.folder / f"{self.number:05d}.i16"

    @property
    def rows(self) -> Path:
        """Written last, by rename: a part that has its rows is complete."""
        return self.folder / f"{self.number:05d}.npy"

    @property
    def faults(self) -> Path:
        return self.folder / f"{self.number:05d}.faults"


def render_part(source: Source, group: str, files: PartFiles, cleaner: Cleaner) -> None:
    """Renders a group's notes to its part; notes that are faulty by themselves are dropped here already."""
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    offset = 0
    with files.audio.open("wb") as audio_file:
        for note in source.notes(group):
            audio = at_rate(note, source.sample_rate)
            if fault := cleaner.audio_fault(audio):
                faults.append(fault.value)
                continue
            scale = float(np.abs(audio).max()) / INT16_MAX
            np.rint(audio / scale).astype("<i2").tofile(audio_file)
            rows.append(part_row(note, audio, offset, scale))
            offset += len(audio)
    files.faults.write_text("\n".join(faults))
    unfinished = files.rows.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.save(file, np.array(rows, PART_ROW))
    unfinished.replace(files.rows)


def part_row(note: Note, audio: NDArray[np.float32], offset: int, scale: float) -> tuple[object, ...]:
    """The PART_ROW of one note."""
    for name in (note.instrument, note.family, note.source):
        if len(name) > MAX_NAME:
            raise SourceError(f"{name[:20]}...: names have at most {MAX_NAME} characters, got {len(name)}")
    values = {
        "offset": offset,
        "length": len(audio),
        "scale": scale,
        "pitch": note.pitch,
        "velocity": note.velocity,
        "held_seconds": note.held_seconds,
        "cut": note.cut,
        "instrument": note.instrument,
        "family": note.family,
        "source": note.source,
        "digest": audio_digest(audio),
        "cell_digest": note.cell_digest.ljust(16, b"\0"),
        "has_cell_digest": bool(note.cell_digest),
    }
    return tuple(values[name] for name in PART_ROW.names or ())


def at_rate(note: Note, sample_rate: int) -> NDArray[np.float32]:
    """The note's audio [samples] at another sample rate."""
    if note.sample_rate == sample_rate:
        return note.audio
    resampled: NDArray[np.float32] = soxr.resample(note.audio, note.sample_rate, sample_rate, quality="HQ")
    return resampled.astype(np.float32)


class Merger:
    """Writes a library's three files into a folder, part by part in the source's order."""

    def __init__(self, folder: Path, rule: SplitRule, cleaner: Cleaner) -> None:
        self.folder = folder
        self.rule = rule
        self.cleaner = cleaner
        self.rows: list[tuple[object, ...]] = []
        self.instruments: dict[tuple[str, str], int] = {}
        self.families: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        self.dropped: Counter[str] = Counter()
        self.n_samples = 0

    def merge(self, parts: Sequence[PartFiles]) -> None:
        """Copies the notes of all parts that are not repeats."""
        with (self.folder / AUDIO_FILE).open("wb") as out:
            for part in parts:
                self._merge_part(part, out)

    def _merge_part(self, part: PartFiles, out: BinaryIO) -> None:
        self.dropped.update(part.faults.read_text().split("\n") if part.faults.stat().st_size else [])
        rows = np.load(part.rows)
        audio: NDArray[np.int16] = np.fromfile(part.audio, "<i2")
        for row in rows:
            digest = row["cell_digest"].tobytes() if row["has_cell_digest"] else b""
            fault = self.cleaner.repeat_fault(
                row["digest"].tobytes(), str(row["instrument"]), int(row["pitch"]), digest
            )
            if fault:
                self.dropped[fault.value] += 1
                continue
            audio[row["offset"] : row["offset"] + row["length"]].tofile(out)
            self._append(dict(zip(PART_ROW.names or (), row.tolist(), strict=True)))

    def _append(self, part_row: dict[str, object]) -> None:
        instrument, family = str(part_row["instrument"]), str(part_row["family"])
        length, pitch = int(str(part_row["length"])), int(str(part_row["pitch"]))
        values = {
            **part_row,
            "offset": self.n_samples,
            "instrument": self.instruments.setdefault((instrument, family), len(self.instruments)),
            "family": self.families.setdefault(family, len(self.families)),
            "source": self.sources.setdefault(str(part_row["source"]), len(self.sources)),
            "split": int(self.rule.split_of(instrument, pitch)),
        }
        self.rows.append(tuple(values[name] for name in ROW.names or ()))
        self.n_samples += length

    def finish(self, source: Source) -> DatasetSummary:
        """Writes index and header."""
        index = np.array(self.rows, ROW)
        summary = DatasetSummary(
            n_notes=len(index),
            n_instruments=len(self.instruments),
            seconds=self.n_samples / source.sample_rate,
            n_cut=int(index["cut"].sum()),
            dropped=dict(self.dropped),
            splits={split.name.lower(): int((index["split"] == split).sum()) for split in Split},
        )
        np.save(self.folder / INDEX_FILE, index)
        header = {
            "format": FORMAT,
            "version": VERSION,
            "sample_rate": source.sample_rate,
            "n_samples": self.n_samples,
            "sources": [{"name": name, "licence": source.licences[name]} for name in self.sources],
            "settings": dict(source.settings()),
            "split": self.rule.to_json(),
            "instruments": [{"name": name, "family": family} for name, family in self.instruments],
            "families": list(self.families),
            "dropped": summary.dropped,
            "splits": summary.splits,
        }
        (self.folder / HEADER_FILE).write_text(json.dumps(header, indent=2) + "\n")
        return summary


PLAN_FILE = "plan.json"


def render_dataset(
    source: Source,
    path: str | Path,
    jobs: int = 2,
    *,
    rule: SplitRule | None = None,
    cleaner: Cleaner | None = None,
    progress: bool = False,
) -> DatasetSummary:
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
) -> DatasetSummary:
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
