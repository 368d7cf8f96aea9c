"""FluidSynth as a dry single-note renderer in float32.

`pyfluidsynth` reads blocks as dithered 16-bit integers; `fluid_synth_write_float` of the same library gives
what the synthesizer really computed, bit for bit the same each time.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.note import SourceError

BLOCK = 64
"""FluidSynth computes in blocks of 64 samples and acts on a key at the start of one. As long as whole blocks
are read, a key goes down, and up, at exactly the next sample read."""

LOG_LEVELS = 5
"""FluidSynth would print about every missing preset; what matters is raised as an error instead."""

CHANNEL = 0
BANK = 0


class FluidRenderer:
    """Plays one key at a time of one soundfont. Not picklable: each process opens its own."""

    def __init__(self, font: Path, sample_rate: int, gain: float) -> None:
        fluidsynth = _import_fluidsynth()
        library = ctypes.CDLL(fluidsynth.lib)
        for level in range(LOG_LEVELS):
            library.fluid_set_log_function(level, None, None)
        self._write_float = library.fluid_synth_write_float
        channel = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)  # address, first sample, stride
        self._write_float.argtypes = (ctypes.c_void_p, ctypes.c_int, *channel, *channel)
        self._synth = fluidsynth.Synth(
            gain=gain,
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
        """Puts the key down at the next sample that is read, with nothing else sounding."""
        self.silence()
        self._key = pitch
        self._synth.noteon(CHANNEL, pitch, velocity)

    def note_off(self) -> None:
        """Lets the key go at the next sample that is read."""
        if self._key is not None:
            self._synth.noteoff(CHANNEL, self._key)

    def silence(self) -> None:
        """Ends all sound at once."""
        self._synth.all_sounds_off(CHANNEL)
        self.read(BLOCK)  # voices are freed as a block is computed

    @property
    def sounding(self) -> bool:
        """True while any voice is alive."""
        return bool(self._synth.get_active_voice_count() > 0)

    def read(self, n_samples: int) -> NDArray[np.float32]:
        """Returns the next samples: [2, n_samples], a multiple of 64."""
        if n_samples % BLOCK:
            raise ValueError(f"reads are whole blocks of {BLOCK} samples, got {n_samples}")
        stereo = np.zeros((2, n_samples), np.float32)
        left, right = stereo[0].ctypes.data, stereo[1].ctypes.data
        self._write_float(self._synth.synth, n_samples, left, 0, 1, right, 0, 1)
        return stereo

    def close(self) -> None:
        """Frees the synthesizer."""
        self._synth.delete()


def _import_fluidsynth() -> Any:
    try:
        import fluidsynth
    except ImportError as error:
        raise SourceError(
            "rendering soundfonts needs FluidSynth: install the system package fluidsynth "
            "and `pip install pyfluidsynth` (or timbrel[train])"
        ) from error
    return fluidsynth
