"""What was made and measured so far, on disk: a run that was killed goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import atomic_path
from timbrel_posttraining.evaluate.record import Record
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.notes.dataset import NoteDataset

VERSION = 1
"""Raise it when what is measured changes: older measurements are then made anew."""


@dataclass(frozen=True)
class TakeCache:
    """A folder with up to three files for each take. Processes may share it: files appear whole."""

    folder: Path

    @classmethod
    def open(cls, out: Path, bundle: Bundle, library: NoteDataset) -> TakeCache:
        """The folder for this very bundle and library, made as needed."""
        digest = hashlib.sha256(f"{VERSION} {bundle.manifest.bundle_hash} ".encode())
        digest.update(json.dumps(library.header, sort_keys=True).encode())
        digest.update(library.index.tobytes())
        folder = out / "cache" / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def has_codes(self, take: Take) -> bool:
        """Whether a generated take has been written."""
        return self._codes(take).is_file()

    def save_codes(self, take: Take, codes: NDArray[np.uint16], truncated: bool) -> None:
        """Keeps codes [T, K] of a generated take, and whether it was cut at the bundle's cap."""
        with atomic_path(self._codes(take)) as temporary, open(temporary, "xb") as file:
            np.savez(file, codes=codes, truncated=truncated)

    def codes(self, take: Take) -> tuple[NDArray[np.uint16], bool]:
        """What `save_codes` kept."""
        with np.load(self._codes(take)) as kept:
            return kept["codes"], bool(kept["truncated"])

    def has_mel(self, take: Take) -> bool:
        """Whether the take's log-mel spectrogram is there."""
        return self._mel(take).is_file()

    def save_mel(self, take: Take, mel: NDArray[np.floating]) -> None:
        """Keeps a log-mel spectrogram [frames, 80] in dB, rounded to fp16: to 0.06 dB or better."""
        with atomic_path(self._mel(take)) as temporary, open(temporary, "xb") as file:
            np.save(file, mel.astype(np.float16))

    def mel(self, take: Take) -> NDArray[np.float32]:
        """What `save_mel` kept."""
        return np.asarray(np.load(self._mel(take)), dtype=np.float32)

    def has_record(self, take: Take) -> bool:
        """Whether the take was measured in full."""
        return self._record(take).is_file()

    def save_record(self, take: Take, record: Record) -> None:
        """Keeps a take's measurements."""
        with atomic_path(self._record(take)) as temporary:
            temporary.write_text(json.dumps(record.to_json()))

    def record(self, take: Take) -> Record:
        """What `save_record` kept."""
        return Record.from_json(json.loads(self._record(take).read_text()))

    def _codes(self, take: Take) -> Path:
        return self.folder / f"{take.id}.codes.npz"

    def _mel(self, take: Take) -> Path:
        return self.folder / f"{take.id}.mel.npy"

    def _record(self, take: Take) -> Path:
        return self.folder / f"{take.id}.json"
