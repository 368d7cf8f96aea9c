"""The samplers that a library is played by: sfizz for .sfz, FluidSynth for .sf2, where they are installed."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from timbrel.library.plan.notes import SAMPLES
from timbrel.library.render.level import Audio
from timbrel_bundle.audio import resample

NO_SFIZZ = (
    "no .sfz was played: sfizz is not installed, or cannot be loaded (pip install pysfizz, of which there is "
    "none for Linux and Windows on ARM; Debian: apt-get install libatomic1)"
)
NO_FLUIDSYNTH = (
    "no .sf2 was played: FluidSynth is not installed, or cannot be loaded (Debian: apt-get install "
    "fluidsynth; macOS: brew install fluid-synth; Windows: choco install fluidsynth; pip install "
    "pyfluidsynth)"
)

SFIZZ_DB = -11.51
"""sfizz plays a sample softer by this on either side, as it comes: its volume, and a sound in the middle."""

STANDARD_ERROR = 2
BLOCK_SIZE = 1024

FLUIDSYNTH_BLOCK = 64
"""FluidSynth acts on keys at multiples of so many samples."""

FLUIDSYNTH_FASTEST = 96_000
"""Hz: FluidSynth plays no faster; told to, it goes on at 44.1 kHz."""

LOG_LEVELS = 5


def has_sfizz() -> bool:
    return _is_loaded(lambda: importlib.import_module("pysfizz"))


def has_fluidsynth() -> bool:
    return _is_loaded(_pyfluidsynth)


def _is_loaded(load: Callable[[], Any]) -> bool:
    try:
        load()
    except (ImportError, OSError):  # of the package, or of the library that it looks for, or loads
        return False
    return True


class Sfizz(AbstractContextManager["Sfizz"]):
    """sfizz, with a .sfz file whose samples are there."""

    name = "sfizz"

    def __init__(self, path: Path, sample_rate: int) -> None:
        """Raises ValueError where it cannot load the file."""
        from pysfizz import Synth

        self._sample_rate = sample_rate
        self._synth: Any = Synth(sample_rate=sample_rate, block_size=BLOCK_SIZE)
        self._folder = TemporaryDirectory(prefix="timbrel-verify-")
        copy = Path(self._folder.name) / "instrument.sfz"
        # Read at once: on a busy machine, samples that are streamed fall silent in their middle.
        control = "<control>\nhint_ram_based=1\n"
        try:
            (copy.parent / SAMPLES).symlink_to((path.parent / SAMPLES).resolve())
        except OSError:  # Windows lets few people make links
            control += f"default_path={path.parent.resolve().as_posix()}/\n"
        copy.write_text(control + path.read_text(encoding="utf-8"), encoding="utf-8")
        with _silent_sfizz():
            loaded = self._synth.load_sfz_file(copy, quiet=False)
        if not loaded:
            self._folder.cleanup()
            raise ValueError("sfizz cannot load it")
        self._synth._synth.enable_freewheeling()

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def play(self, key: int, velocity: int, seconds: float) -> Audio:
        """Holds a key for so long, with nothing else sounding: mono [samples], as loud as the file says."""
        self._synth._synth.all_sound_off()  # nothing of the key before
        stereo = self._synth.render_note(key, velocity, seconds, seconds)
        return np.asarray(np.mean(stereo, axis=0) * 10.0 ** (-SFIZZ_DB / 20.0), dtype=np.float32)


class FluidSynth(AbstractContextManager["FluidSynth"]):
    """FluidSynth, with the first preset of a .sf2 file."""

    name = "FluidSynth"

    def __init__(self, path: Path, sample_rate: int) -> None:
        """Raises ValueError where it cannot load the file."""
        fluidsynth = _pyfluidsynth()
        library = ctypes.CDLL(fluidsynth.lib)
        for level in range(LOG_LEVELS):
            library.fluid_set_log_function(level, None, None)
        # pyfluidsynth itself reads dithered 16-bit integers.
        self._write_float = library.fluid_synth_write_float
        channel = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)  # address, first sample, stride
        self._write_float.argtypes = (ctypes.c_void_p, ctypes.c_int, *channel, *channel)
        self._sample_rate = sample_rate
        self._own_rate = min(sample_rate, FLUIDSYNTH_FASTEST)
        settings = {"synth.reverb.active": 0, "synth.chorus.active": 0, "synth.cpu-cores": 1}
        self._synth = fluidsynth.Synth(gain=1.0, samplerate=float(self._own_rate), **settings)
        font = self._synth.sfload(str(path))
        if font < 0 or self._synth.program_select(0, font, 0, 0) != 0:
            self._synth.delete()
            raise ValueError("FluidSynth cannot load it")

    def __exit__(self, *_: object) -> None:
        self._synth.delete()

    def play(self, key: int, velocity: int, seconds: float) -> Audio:
        self._synth.all_sounds_off(0)
        self._read(FLUIDSYNTH_BLOCK)  # voices are freed as a block is computed
        self._synth.noteon(0, key, velocity)
        played = self._read(round(seconds * self._own_rate / FLUIDSYNTH_BLOCK) * FLUIDSYNTH_BLOCK)
        self._synth.noteoff(0, key)
        # A sound in the middle is a half on either side.
        return resample(played.sum(axis=0), self._own_rate, self._sample_rate)

    def _read(self, n_samples: int) -> Audio:
        stereo = np.zeros((2, n_samples), np.float32)
        left, right = stereo[0].ctypes.data, stereo[1].ctypes.data
        self._write_float(self._synth.synth, n_samples, left, 0, 1, right, 0, 1)
        return stereo


Sampler: TypeAlias = Sfizz | FluidSynth


def _pyfluidsynth() -> Any:
    """Imports it; where a variable CI is set, it would print the library that it found."""
    with redirect_stdout(None):
        import fluidsynth
    return fluidsynth


@contextmanager
def _silent_sfizz() -> Iterator[None]:
    """Discards what the library itself writes to standard error.

    pysfizz does so by `sys.stderr`, which notebooks and others replace by what is no file.
    """
    sys.stderr.flush()
    kept = os.dup(STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
        os.close(nowhere)
