"""Writes a token store, so that a killed run continues where it stopped."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import writing
from timbrel_training.tokens.store import MAGIC, PREFIX, ROW, VERSION, StoreError, TokenHeader, aligned


class TokenStoreWriter(AbstractContextManager["TokenStoreWriter"]):
    """Appends notes to `<path>.partial`; `finish` makes the file at `path` by one rename.

    A note counts once its row is written, which happens after its codes and names. Reopening drops whatever a
    killed run left half-written; `len(writer)` then says how many notes, in order, need not be added again.

        with TokenStoreWriter(path, header) as writer:
            for note in islice(notes, len(writer), None):
                writer.add(...)
            writer.finish()

    Raises:
        StoreError: `path` exists, or the unfinished work is of another codec, or `of` other notes.
    """

    def __init__(self, path: str | Path, header: TokenHeader, of: str = "") -> None:
        self.path, self.header, self._of = Path(path), header, of
        if self.path.exists():
            raise StoreError(f"{self.path}: exists already; remove it or choose another name")
        self._folder = self.path.with_name(self.path.name + ".partial")
        self._begin()
        self._n_notes, self._n_frames = self._recover()
        self._instruments, self._sources = self._read_names()
        self._codes = self._append("codes")
        self._rows = self._append("rows")
        self._names = self._append("names")

    def __len__(self) -> int:
        """Returns notes written so far, by earlier runs too."""
        return self._n_notes

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        codes: NDArray[np.unsignedinteger],
        instrument: str,
        family: str,
        pitch: int,
        velocity: int,
        held_frames: int,
        source: str,
        split: int,
        cut: bool = False,
    ) -> None:
        """Appends one note of codes [frames, codebooks]. Raises ValueError: the codes do not have the
        header's shape or range; WriteError: the disk is full."""
        self._check(codes)
        row = np.zeros(1, ROW)
        row["offset"], row["n_frames"] = self._n_frames, len(codes)
        row["held_frames"] = held_frames
        row["instrument"] = self._number("instrument", self._instruments, (instrument, family))
        row["source"] = self._number("source", self._sources, (source,))
        row["pitch"], row["velocity"], row["split"], row["cut"] = pitch, velocity, split, cut
        self._write(self._codes, np.ascontiguousarray(codes, "<u2").tobytes())
        self._write(self._rows, row.tobytes())
        self._n_notes += 1
        self._n_frames += len(codes)

    def finish(self) -> None:
        """Puts the parts together and gives the store its name. No note can be added afterwards. Raises
        WriteError: the disk is full."""
        self.close()
        document = {
            "codec": asdict(self.header),
            "instruments": [list(key) for key in self._instruments],
            "sources": [name for (name,) in self._sources],
            "n_notes": self._n_notes,
            "n_frames": self._n_frames,
        }
        text = json.dumps(document, ensure_ascii=False).encode()
        unfinished = self._folder / "store"
        with writing(self.path), unfinished.open("wb") as out:
            out.write(PREFIX.pack(MAGIC, VERSION, len(text)) + text)
            for name in ("rows", "codes"):
                out.write(bytes(aligned(out.tell()) - out.tell()))
                with (self._folder / name).open("rb") as part:
                    shutil.copyfileobj(part, out, 2**20)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(self.path)
        shutil.rmtree(self._folder)

    def close(self) -> None:
        """Closes the parts; they stay for a later run."""
        for file in (self._codes, self._rows, self._names):
            file.close()

    def _begin(self) -> None:
        header_file = self._folder / "header.json"
        header = json.loads(json.dumps(asdict(self.header) | {"of": self._of}))  # tuples are lists there
        try:
            found = json.loads(header_file.read_text()) if header_file.exists() else None
        except ValueError:
            found = None
        if found is not None and {**header, **found} != header:  # older ones state less
            of_whom = "other notes" if {**header, **found, "of": self._of} == header else "another codec"
            raise StoreError(f"{self._folder}: unfinished work of {of_whom}; remove that folder")
        if found is None:
            if self._folder.is_dir() and any(self._folder.iterdir()) and not header_file.exists():
                raise StoreError(f"{self._folder}: not begun by timbrel; move it away or choose another name")
            with writing(self._folder):
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.mkdir(parents=True)
                header_file.write_text(json.dumps(header))

    def _recover(self) -> tuple[int, int]:
        """Cuts the parts back to the notes that are complete; how many notes and frames those have."""
        for name in ("codes", "rows", "names"):
            (self._folder / name).touch()
        frame_bytes = 2 * self.header.n_codebooks
        raw = (self._folder / "rows").read_bytes()
        rows = np.frombuffer(raw[: len(raw) // ROW.itemsize * ROW.itemsize], ROW)
        ends = rows["offset"] + rows["n_frames"]
        n_notes = int(np.searchsorted(ends, (self._folder / "codes").stat().st_size // frame_bytes, "right"))
        n_frames = int(ends[n_notes - 1]) if n_notes else 0
        os.truncate(self._folder / "rows", n_notes * ROW.itemsize)
        os.truncate(self._folder / "codes", n_frames * frame_bytes)
        return n_notes, n_frames

    def _read_names(self) -> tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], int]]:
        file = self._folder / "names"
        raw = file.read_bytes()
        complete = raw[: raw.rfind(b"\n") + 1]
        os.truncate(file, len(complete))
        tables: dict[str, dict[tuple[str, ...], int]] = {"instrument": {}, "source": {}}
        for line in complete.splitlines():
            kind, *key = json.loads(line)
            tables[kind][tuple(key)] = len(tables[kind])
        return tables["instrument"], tables["source"]

    def _append(self, name: str) -> BinaryIO:
        # Unbuffered: what `add` has written survives a killed process.
        return (self._folder / name).open("ab", buffering=0)  # type: ignore[return-value]

    def _write(self, file: BinaryIO, data: bytes) -> None:
        """Appends all of it: an unbuffered file may take less at once, as the last of a disk does."""
        with writing(self.path):
            while data:
                data = data[file.write(data) :]

    def _number(self, kind: str, table: dict[tuple[str, ...], int], key: tuple[str, ...]) -> int:
        if key not in table:
            self._write(self._names, json.dumps([kind, *key]).encode() + b"\n")
            table[key] = len(table)
        return table[key]

    def _check(self, codes: NDArray[np.unsignedinteger]) -> None:
        if codes.ndim != 2 or codes.shape[1] != self.header.n_codebooks:
            raise ValueError(f"codes must be [frames, {self.header.n_codebooks}], got {list(codes.shape)}")
        if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= self.header.codebook_size):
            raise ValueError(
                f"codes must be 0 to {self.header.codebook_size - 1}, "
                f"got {int(codes.min())} to {int(codes.max())}"
            )
