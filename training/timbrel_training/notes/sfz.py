"""Renders notes from an .sfz instrument, dry, by sfizz."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.note import UNKNOWN_FAMILY, Note, Source, SourceError
from timbrel_training.notes.playing import NoteRecorder

BLOCK = 256
"""Samples that sfizz computes at once."""
FOLDERS_UP = 3
"""The instrument's samples lie beside its file, or at most this many folders up, less one."""
LOUDEST_PEAK = 0.7
"""The loudest key at velocity 127 peaks at this: as the loudest program of FluidR3 does."""
PROBE_SECONDS = 0.5
STANDARD_ERROR = 2
NO_LINKS = 1314
"""What Windows says to whoever is neither an administrator nor in developer mode."""


class SfizzRenderer:
    """A `Sampler` of one .sfz file, all of whose samples it holds in memory. Not picklable.

    A new one plays its round robins from the first one on. Raises SourceError: sfizz is not installed, or
    cannot load the file.
    """

    block = BLOCK

    def __init__(self, path: Path, sample_rate: int) -> None:
        try:
            from pysfizz import Synth
        except ModuleNotFoundError as error:
            raise SourceError(
                "rendering .sfz instruments needs sfizz: `pip install pysfizz` (or timbrel[train]); there is "
                "none for Linux and Windows on ARM"
            ) from error
        except ImportError as error:
            raise SourceError(
                f"rendering .sfz instruments needs sfizz, which cannot be loaded: {error} (on Debian its "
                "package wants another: apt-get install libatomic1)"
            ) from error
        synth = Synth(sample_rate=sample_rate, block_size=BLOCK)
        try:
            with _in_memory(path) as copy, _silent_stderr():
                loaded = synth.load_sfz_file(copy, quiet=False)
        except OSError as error:
            told = f"{path}: it, or what lies beside it, cannot be read ({error.strerror})"
            if getattr(error, "winerror", None) == NO_LINKS:
                told = f"{path}: Windows lets no links be made to its samples; turn on its developer mode"
            raise SourceError(told) from error
        if not loaded:
            raise SourceError(
                f"{path}: no region can be played: not an .sfz file, or its samples are missing"
            )
        self.keys: tuple[int, ...] = tuple(synth.playable_keys)
        """MIDI note numbers that the file maps."""
        self.gain = 1.0
        self._synth: Any = synth._synth
        self._key: int | None = None

    def note_on(self, pitch: int, velocity: int) -> None:
        self.note_off()  # behind a key that is still down, regions of trigger=legato would sound
        self._synth.all_sound_off()
        self._key = pitch
        self._synth.note_on(0, pitch, velocity)

    def note_off(self) -> None:
        if self._key is not None:
            self._synth.note_off(0, self._key, 0)
            self._key = None

    @property
    def sounding(self) -> bool:
        return bool(self._synth.get_num_active_voices() > 0)

    def read(self, n_samples: int) -> NDArray[np.float32]:
        stereo = np.zeros((2, n_samples), np.float32)
        for start in range(0, n_samples, BLOCK):
            stereo[0, start : start + BLOCK], stereo[1, start : start + BLOCK] = self._synth.render_block()
        return stereo * np.float32(self.gain)


class SfzSource(Source):
    """Every pitch that an .sfz file maps, with its velocity layers, round robins and release samples.

    Of several articulations it has the one that its keyswitches begin with. The draws of a cell follow each
    other on one sampler: where the file has round robins they take turns. One gain serves all notes.

    Raises:
        SourceError: no such file, or not an .sfz file; sfizz is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        recorder: NoteRecorder | None = None,
        pitches: Iterable[int] = range(NotesConfig.low_pitch, NotesConfig.high_pitch + 1),
        n_draws: int = NotesConfig.n_draws,
        instrument: str = "",
        family: str = "",
        licence: str = "unknown",
    ) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise SourceError(f"{self.path}: there is no such file")
        if self.path.suffix.lower() != ".sfz":
            raise SourceError(f"{self.path}: must end in .sfz")
        self.recorder = recorder or NoteRecorder()
        self.sample_rate = self.recorder.sample_rate
        self.pitches = tuple(pitches)
        self.n_draws = n_draws
        self.instrument = instrument or self.path.stem
        self.family = family or UNKNOWN_FAMILY
        self.licence = licence
        self.name = f"sfz {self.instrument}"

    def settings(self) -> Mapping[str, object]:
        return {
            "sfz": self.path.name,
            "sha256": hashlib.sha256(self.path.read_bytes()).hexdigest(),
            "instrument": self.instrument,
            "family": self.family,
            "pitches": list(self.pitches),
            "n_draws": self.n_draws,
            **asdict(self.recorder),
        }

    def check(self) -> None:
        SfizzRenderer(self.path, self.sample_rate)  # loads all samples

    def groups(self) -> Sequence[str]:
        return [self.instrument]

    def notes(self, group: str) -> Iterator[Note]:
        sampler = SfizzRenderer(self.path, self.sample_rate)
        peaks = self._probe(sampler)
        sampler.gain = LOUDEST_PEAK / max(peaks.values(), default=1.0)
        for pitch in peaks:
            cell = self.recorder.cell(sampler, self.instrument, self.family, pitch, self.name)
            for index in range(self.n_draws):
                yield self.recorder.note(sampler, cell, index)

    def _probe(self, sampler: SfizzRenderer) -> dict[int, float]:
        """Returns the peak of each pitch at velocity 127, of those that sound."""
        peaks = {}
        n_samples = int(PROBE_SECONDS * self.sample_rate) // BLOCK * BLOCK
        for pitch in sorted(set(self.pitches) & set(sampler.keys)):
            sampler.note_on(pitch, 127)
            peaks[pitch] = float(np.abs(sampler.read(n_samples)).max())
        return {pitch: peak for pitch, peak in peaks.items() if peak > 0.0}


@contextmanager
def _in_memory(path: Path) -> Iterator[Path]:
    """A copy of the .sfz file that has sfizz read all samples at once, among links to what the file is among.

    Samples that sfizz streams would fall silent where it renders faster than it reads.
    """
    path = path.resolve()
    folders = list(reversed(path.parents[:FOLDERS_UP]))
    with TemporaryDirectory(prefix="timbrel-sfz-") as top:
        place = Path(top)
        for folder, within in zip(folders, [*folders[1:], path], strict=True):
            # One above may let nobody list it, as those of many homes do: samples hardly lie there.
            with suppress(PermissionError) if within != path else nullcontext():
                for entry in folder.iterdir():
                    if entry != within:
                        (place / entry.name).symlink_to(entry)
            place /= within.name
            if within != path:
                place.mkdir()
        # As bytes: samples may have names in whatever encoding. sfizz would take a mark of UTF-8 for text.
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        place.write_bytes(b"<control>\nhint_ram_based=1\n" + text)
        yield place


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discards what sfizz itself writes to standard error."""
    kept, nowhere = os.dup(STANDARD_ERROR), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
        os.close(nowhere)
