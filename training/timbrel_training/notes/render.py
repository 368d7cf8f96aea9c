"""Renders a source of notes into a dataset, over several processes, and continues what was begun.

Each group of the source becomes a part, the unit of work and of resuming it. Then the parts are merged:
repeats are dropped, splits decided, names numbered.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soxr
from numpy.typing import NDArray

from timbrel_training.errors import writing
from timbrel_training.notes.cleaning import Cleaner, NoteFault, audio_digest, without_offset
from timbrel_training.notes.dataset import AUDIO_FILE, FORMAT, HEADER_FILE, INDEX_FILE, ROW, VERSION
from timbrel_training.notes.note import Note, Source, SourceError, agreed_names, fold_name, is_printable
from timbrel_training.notes.split import Split, SplitRule
from timbrel_training.processes import results
from timbrel_training.progress import bar

PLAN_FILE = "plan.json"
INT16_MAX = 32767
MAX_NAME = 128
"""Longest name of an instrument or family, in characters."""
MAX_LICENCE = 1000
"""Longest text of a bundle's manifest, in characters."""

PART_ROW = np.dtype(
    [
        ("offset", "<i8"),
        ("length", "<i4"),
        ("scale", "<f4"),
        ("pitch", "u1"),
        ("velocity", "u1"),
        ("held_seconds", "<f4"),
        ("cut", "?"),
        *((name, f"U{MAX_NAME}") for name in ("instrument", "family", "source")),
        ("digest", "V16"),
        ("cell_digest", "V16"),
        ("has_cell_digest", "?"),
    ]
)
"""A part has names instead of a dataset's numbers, and the digests that tell repeats."""


def counted(number: int, noun: str) -> str:
    """As in "1 instrument" and "2 instruments"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True)
class DatasetSummary:
    """Counts of one finished dataset."""

    n_notes: int
    n_instruments: int
    seconds: float  # of audio
    n_cut: int  # notes still sounding where their audio ends
    dropped: Mapping[str, int]  # reason -> notes
    splits: Mapping[str, int]  # split -> notes
    unmatched: Sequence[str]  # names to be held out that no instrument or family has

    def lines(self) -> list[str]:
        """Returns the summary as lines to print."""
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items()) or "none"
        splits = ", ".join(f"{count} {name}" for name, count in self.splits.items())
        unmatched = f"held out by name, but not there: {', '.join(self.unmatched)}"
        return [
            f"{counted(self.n_notes, 'note')} of {counted(self.n_instruments, 'instrument')}, "
            f"{self.seconds / 3600:.2f} hours",
            f"dropped: {dropped}",
            f"split: {splits}",
            f"cut while still sounding: {self.n_cut}",
            *([unmatched] if self.unmatched else []),
        ]


def render_dataset(
    source: Source,
    path: str | Path,
    jobs: int = 2,
    *,
    rule: SplitRule | None = None,
    cleaner: Cleaner | None = None,
    progress: bool = False,
) -> DatasetSummary:
    """Renders all notes of a source into the dataset folder `path`, which appears only when it is complete.

    Unfinished work lies beside it in `<path>.partial` and is taken up by the next call with an equal source.
    What to hold out and what counts as silent or clipped is by default that of SplitRule and Cleaner. Raises
    SourceError: the source cannot be read or has no usable note; `path` exists, or a `<path>.partial` of
    another's, or with notes of another source or of other settings.
    WriteError: the disk is full.
    """
    path, rule, cleaner = Path(path), rule or SplitRule(), cleaner or Cleaner()
    if path.exists():
        raise SourceError(f"{path}: exists already; remove it or choose another folder")
    work = path.with_name(path.name + ".partial")
    _check_licences(source)
    source.check()
    _begin(work, source, cleaner)
    parts = [PartFiles(work, number) for number in range(len(source.groups()))]
    try:
        _render_missing(source, parts, cleaner, jobs, progress)
    except SourceError:
        if not any(part.rows.exists() for part in parts):
            shutil.rmtree(work)
        raise
    merged = work / "result"
    with writing(path):
        merged.mkdir(exist_ok=True)
        summary = Merger(merged, rule, cleaner).merge(parts, source)
        if summary.n_notes:
            merged.rename(path)
    shutil.rmtree(work)
    if not summary.n_notes:
        hint = "; in names, C4 is MIDI note 60" if NoteFault.OFF_PITCH in summary.dropped else ""
        raise SourceError(f"no usable note in {source.name}: {summary.lines()[1]}{hint}")
    return summary


def _check_licences(source: Source) -> None:
    for name, licence in source.licences.items():
        if len(licence) > MAX_LICENCE or not is_printable(licence):
            raise SourceError(
                f"licence {licence[:60]!r} of {name}: needs one line of at most {MAX_LICENCE} printable "
                f"characters, got {len(licence)}"
            )


def _begin(work: Path, source: Source, cleaner: Cleaner) -> None:
    """Makes the work folder, or keeps it if it was begun for equal notes; one without notes is begun anew."""
    plan = {
        "format": FORMAT,
        "version": VERSION,
        "source": source.name,
        "settings": dict(source.settings()),
        "silence_peak": cleaner.silence_peak,
        "clip_peak": cleaner.clip_peak,
        "check_pitch": cleaner.check_pitch,
    }
    text = json.dumps(plan, indent=2)
    plan_file = work / PLAN_FILE
    found = plan_file.read_text(errors="replace") if plan_file.is_file() else ""
    if found == text:
        return
    if work.exists():
        is_empty = work.is_dir() and not any(work.iterdir())
        if not is_empty and not found.startswith(text[: text.index(",")]):
            raise SourceError(f"{work}: not of `timbrel train notes`; move it away or choose another --out")
        if any(work.glob("*.npy")):
            raise SourceError(
                f"{work}: unfinished work on other notes, or with other settings; give those again to go on, "
                "remove that folder or choose another --out"
            )
        shutil.rmtree(work)
    with writing(work):
        work.mkdir(parents=True)
        try:
            plan_file.write_text(text)
        except OSError:
            shutil.rmtree(work)
            raise


@dataclass(frozen=True)
class PartFiles:
    """The files of the part of group number `number`."""

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


def _render_missing(
    source: Source, parts: Sequence[PartFiles], cleaner: Cleaner, jobs: int, progress: bool
) -> None:
    missing = [part for part in parts if not part.rows.exists()]
    with results(partial(_same, (source, cleaner)), _render_part, missing, jobs) as done:
        for _ in bar(done, description="notes", total=len(missing), unit="group", shown=progress):
            pass


def _same(worker: tuple[Source, Cleaner]) -> tuple[Source, Cleaner]:
    return worker


def _render_part(worker: tuple[Source, Cleaner], files: PartFiles) -> None:
    """Renders a group's notes to its part; notes that are faulty by themselves are dropped here already."""
    source, cleaner = worker
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    offset = 0
    with files.audio.open("wb") as audio_file:
        for note in source.notes(source.groups()[files.number]):
            if fault := cleaner.audio_fault(note.audio, note.sample_rate, note.pitch):
                faults.append(fault.value)
                continue
            audio = without_offset(_at_rate(note, source.sample_rate), source.sample_rate)
            scale = float(np.abs(audio).max()) / INT16_MAX
            with writing(files.audio):
                np.rint(audio / scale).astype("<i2").tofile(audio_file)
            rows.append(_part_row(note, audio, offset, scale))
            offset += len(audio)
    with writing(files.rows):
        files.faults.write_text("\n".join(faults))
        unfinished = files.rows.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            np.save(file, np.array(rows, PART_ROW))
        unfinished.replace(files.rows)


def _part_row(note: Note, audio: NDArray[np.float32], offset: int, scale: float) -> tuple[object, ...]:
    """Returns the PART_ROW of one note."""
    for name in (note.instrument, note.family, note.source):
        if len(name) > MAX_NAME:
            raise SourceError(f"{name[:20]}...: names have at most {MAX_NAME} characters, got {len(name)}")
        if not is_printable(name):
            raise SourceError(f"{name!r}: has characters that cannot be printed, which no name may have")
    told = (note.pitch, note.velocity, note.held_seconds, note.cut, note.instrument, note.family, note.source)
    digests = (audio_digest(audio), note.cell_digest.ljust(16, b"\0"), bool(note.cell_digest))
    return (offset, len(audio), scale, *told, *digests)


def _at_rate(note: Note, sample_rate: int) -> NDArray[np.float32]:
    """Returns the note's audio [samples] at another sample rate."""
    if note.sample_rate == sample_rate:
        return note.audio
    resampled: NDArray[np.float32] = soxr.resample(note.audio, note.sample_rate, sample_rate, quality="HQ")
    return resampled.astype(np.float32)


class Merger:
    """Writes a dataset's three files into a folder, part by part in the source's order."""

    def __init__(self, folder: Path, rule: SplitRule, cleaner: Cleaner) -> None:
        self.folder = folder
        self.rule = rule
        self.cleaner = cleaner
        self.rows: list[tuple[object, ...]] = []
        self.names: dict[str, tuple[str, str]] = {}
        self.instruments: dict[tuple[str, str], int] = {}
        self.families: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        self.dropped: Counter[str] = Counter()
        self.n_samples = 0

    def merge(self, parts: Sequence[PartFiles], source: Source) -> DatasetSummary:
        """Copies the notes of all parts that are not repeats, then writes index and header."""
        told = ((row["instrument"], row["family"]) for part in parts for row in np.load(part.rows))
        self.names = agreed_names((str(instrument), str(family)) for instrument, family in told)
        with (self.folder / AUDIO_FILE).open("wb") as out:
            for part in parts:
                self._merge_part(part, out)
        index = np.array(self.rows, ROW)
        summary = DatasetSummary(
            n_notes=len(index),
            n_instruments=len(self.instruments),
            seconds=self.n_samples / source.sample_rate,
            n_cut=int(index["cut"].sum()),
            dropped=dict(self.dropped),
            splits={split.name.lower(): int((index["split"] == split).sum()) for split in Split},
            unmatched=self.rule.unmatched(self.instruments),
        )
        np.save(self.folder / INDEX_FILE, index)
        header = {
            "format": FORMAT,
            "version": VERSION,
            "sample_rate": source.sample_rate,
            "n_samples": self.n_samples,
            "sources": [{"name": name, "licence": source.licences[name]} for name in self.sources],
            "settings": dict(source.settings()),
            "split": asdict(self.rule),
            "instruments": [{"name": name, "family": family} for name, family in self.instruments],
            "families": list(self.families),
            "dropped": summary.dropped,
            "splits": summary.splits,
        }
        (self.folder / HEADER_FILE).write_text(json.dumps(header, indent=2) + "\n")
        return summary

    def _merge_part(self, part: PartFiles, out: BinaryIO) -> None:
        self.dropped.update(part.faults.read_text().split("\n") if part.faults.stat().st_size else [])
        if not len(rows := np.load(part.rows)):
            return  # numpy maps no empty file
        # Mapped, not read: all samples of a piano are more than some machines' memory.
        audio = np.memmap(part.audio, "<i2", "r")
        for row in rows:
            instrument, family = self.names[fold_name(str(row["instrument"]))]
            pitch, source = int(row["pitch"]), str(row["source"])
            cell_digest = row["cell_digest"].tobytes() if row["has_cell_digest"] else b""
            if fault := self.cleaner.repeat_fault(row["digest"].tobytes(), instrument, pitch, cell_digest):
                self.dropped[fault.value] += 1
                continue
            audio[row["offset"] : row["offset"] + row["length"]].tofile(out)
            values = {
                **dict(zip(PART_ROW.names or (), row.tolist(), strict=True)),
                "offset": self.n_samples,
                "instrument": self.instruments.setdefault((instrument, family), len(self.instruments)),
                "family": self.families.setdefault(family, len(self.families)),
                "source": self.sources.setdefault(source, len(self.sources)),
                "split": int(self.rule.split_of(instrument, pitch, family)),
            }
            self.rows.append(tuple(values[name] for name in ROW.names or ()))
            self.n_samples += int(row["length"])
