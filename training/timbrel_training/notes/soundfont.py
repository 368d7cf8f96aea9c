"""Renders notes from a soundfont, dry, by FluidSynth.

`pyfluidsynth` reads blocks as dithered 16-bit integers; `fluid_synth_write_float` of the same library gives
what the synthesizer really computed, bit for bit the same each time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.general_midi import DROPPED_PROGRAMS, MELODIC_PROGRAMS, PROGRAM_NAMES, family_of
from timbrel_training.notes.note import Note, Source, SourceError
from timbrel_training.notes.playing import NoteRecorder

BLOCK = 64
"""FluidSynth computes in blocks of 64 samples and acts on a key at the start of one. As long as whole blocks
are read, a key goes down, and up, at exactly the next sample read."""

LOG_LEVELS = 5
"""FluidSynth would print about every missing preset; what matters is raised as an error instead."""

SAMPLE_RATES = 8_000, 96_000
"""Hz, the lowest and the highest: FluidSynth plays at another rate than it is asked for beyond them."""

CHANNEL = 0
BANK = 0
PITCHES = range(NotesConfig.low_pitch, NotesConfig.high_pitch + 1)
GAIN = 0.8
"""FluidSynth's gain. The loudest program of FluidR3 peaks at 0.87 with a gain of 1 at velocity 127."""


class FluidRenderer:
    """A `Sampler` of one soundfont. Not picklable: each process opens its own."""

    block = BLOCK

    def __init__(self, font: Path, sample_rate: int) -> None:
        try:
            import fluidsynth
        except ImportError as error:
            raise SourceError(
                "rendering soundfonts needs FluidSynth: install the system package fluidsynth "
                "and `pip install pyfluidsynth` (or timbrel[train])"
            ) from error
        library = ctypes.CDLL(fluidsynth.lib)
        for level in range(LOG_LEVELS):
            library.fluid_set_log_function(level, None, None)
        self._write_float = library.fluid_synth_write_float
        channel = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)  # address, first sample, stride
        self._write_float.argtypes = (ctypes.c_void_p, ctypes.c_int, *channel, *channel)
        self._synth = fluidsynth.Synth(
            gain=GAIN,
            samplerate=float(sample_rate),
            **{
                "synth.reverb.active": 0,
                "synth.chorus.active": 0,
                "synth.dynamic-sample-loading": 1,
                "synth.cpu-cores": 1,
            },
        )
        self._font_id = self._synth.sfload(str(font))
        if self._font_id < 0:
            raise SourceError(f"{font}: not a soundfont that FluidSynth can load (.sf2 or .sf3)")
        self._font = font
        self._key: int | None = None

    def select(self, program: int) -> None:
        """Chooses the instrument of the next notes."""
        self.silence()
        if self._synth.program_select(CHANNEL, self._font_id, BANK, program) != 0:
            raise SourceError(f"{self._font}: has no program {program} in bank {BANK}")

    def has_program(self, program: int) -> bool:
        """Returns whether the font has this program (bank 0)."""
        return self._synth.sfpreset_name(self._font_id, BANK, program) is not None

    def note_on(self, pitch: int, velocity: int) -> None:
        self.silence()
        self._key = pitch
        self._synth.noteon(CHANNEL, pitch, velocity)

    def note_off(self) -> None:
        if self._key is not None:
            self._synth.noteoff(CHANNEL, self._key)

    def silence(self) -> None:
        """Ends all sound at once."""
        self._synth.all_sounds_off(CHANNEL)
        self.read(BLOCK)  # voices are freed as a block is computed

    @property
    def sounding(self) -> bool:
        return bool(self._synth.get_active_voice_count() > 0)

    def read(self, n_samples: int) -> NDArray[np.float32]:
        stereo = np.zeros((2, n_samples), np.float32)
        left, right = stereo[0].ctypes.data, stereo[1].ctypes.data
        self._write_float(self._synth.synth, n_samples, left, 0, 1, right, 0, 1)
        return stereo

    def close(self) -> None:
        """Frees the synthesizer."""
        self._synth.delete()


class SoundfontSource(Source):
    """Every program, pitch and draw of a .sf2 or .sf3 font; one group per program.

    Velocity, hold and onset follow from a hash of instrument, pitch and draw number. Levels are the font's
    own: one fixed gain, no normalisation.

    Raises:
        SourceError: no font, or not readable; FluidSynth is not installed, or does not play at the sample
            rate; a program is on the drop list.
    """

    def __init__(
        self,
        font: str | Path,
        *,
        recorder: NoteRecorder | None = None,
        programs: Iterable[int] = MELODIC_PROGRAMS,
        pitches: Iterable[int] = PITCHES,
        n_draws: int = NotesConfig.n_draws,
        licence: str = "unknown",
    ) -> None:
        self.font = Path(font)
        check_font(self.font)
        self.name = f"soundfont {self.font.name}"
        self.recorder = recorder or NoteRecorder()
        self.sample_rate = self.recorder.sample_rate
        low, high = SAMPLE_RATES
        if not low <= self.sample_rate <= high:
            raise SourceError(
                f"{self.font}: FluidSynth renders at {low} to {high} Hz, not at {self.sample_rate}; choose "
                "another notes.sample_rate"
            )
        self.programs = tuple(programs)
        self.pitches = tuple(pitches)
        self.draws = {program: range(n_draws) for program in self.programs}
        """Numbers of the draws of each cell, by program: several fonts may share a cell's draws."""
        self.names: dict[int, str] = {}
        """Names of instruments, by program, that are not General MIDI's."""
        self.licence = licence
        for program in self.programs:
            if program in DROPPED_PROGRAMS:
                name = PROGRAM_NAMES[program]
                raise SourceError(f"program {program} ({name}) is dropped: {DROPPED_PROGRAMS[program]}")

    def settings(self) -> Mapping[str, object]:
        return {
            "font": self.font.name,
            "font_bytes": self.font.stat().st_size,
            "programs": list(self.programs),
            "pitches": list(self.pitches),
            "draws": {str(program): [*draws] for program, draws in self.draws.items()},
            "names": {str(program): name for program, name in self.names.items()},
            "gain": GAIN,
            **asdict(self.recorder),
        }

    def groups(self) -> Sequence[str]:
        return [str(program) for program in self.programs]

    def notes(self, group: str) -> Iterator[Note]:
        program = int(group)
        if not self._renderer.has_program(program):
            return
        self._renderer.select(program)
        instrument = self.names.get(program, PROGRAM_NAMES[program])
        for pitch in self.pitches:
            cell = self.recorder.cell(self._renderer, instrument, family_of(program), pitch, self.name)
            for index in self.draws[program]:
                yield self.recorder.note(self._renderer, cell, index)

    @cached_property
    def _renderer(self) -> FluidRenderer:
        return FluidRenderer(self.font, self.sample_rate)

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_renderer"}


def check_font(font: Path) -> None:
    """Looks at the outermost chunk, which FluidSynth itself checks only noisily. Raises SourceError: the file
    is missing, not a soundfont, or truncated."""
    if not font.is_file():
        raise SourceError(f"{font}: no such soundfont")
    with font.open("rb") as file:
        head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"sfbk":
        raise SourceError(f"{font}: not a soundfont (.sf2 or .sf3)")
    expected = 8 + int.from_bytes(head[4:8], "little")
    if font.stat().st_size < expected:
        raise SourceError(f"{font}: truncated, {font.stat().st_size} bytes of {expected}")
