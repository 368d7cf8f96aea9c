"""From parts to the finished library: repeats are dropped, splits decided, indices numbered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import Cleaner
from timbrel_training.notes.library.layout import (
    AUDIO_FILE,
    FORMAT,
    HEADER_FILE,
    INDEX_FILE,
    PART_ROW,
    ROW,
    VERSION,
)
from timbrel_training.notes.library.part import PartFiles
from timbrel_training.notes.library.summary import LibrarySummary
from timbrel_training.notes.note import Source
from timbrel_training.notes.split import Split, SplitRule


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

    def finish(self, source: Source) -> LibrarySummary:
        """Writes index and header."""
        index = np.array(self.rows, ROW)
        summary = LibrarySummary(
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
