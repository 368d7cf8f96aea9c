"""A note, as a client hands it out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.audio_file import write_audio

Decode = Callable[[npt.NDArray[np.uint16]], npt.NDArray[np.float32]]
"""codes [frames, codebooks] -> audio [samples]"""


@dataclass(frozen=True, eq=False)
class Note:
    """One sounding of an instrument: what was asked for, the codes that came, and their sound."""

    timbre: tuple[float, float]
    """The point (x, y) of the timbre map."""

    pitch: int
    """MIDI note number."""

    velocity: int
    """MIDI velocity."""

    seconds: float
    """How long the key was held, in seconds; the release follows."""

    seed: int
    """The same request with this seed gives the same codes."""

    truncated: bool
    """Whether the note was cut at the bundle's cap, before it had ended."""

    codes: npt.NDArray[np.uint16]
    """[frames, codebooks]"""

    sample_rate: int
    """Audio samples per second."""

    _decode: Decode = field(repr=False)

    def __repr__(self) -> str:
        x, y = self.timbre
        return (
            f"Note(timbre=({x:.3f}, {y:.3f}), pitch={self.pitch}, velocity={self.velocity}, "
            f"seconds={self.seconds:g}, seed={self.seed}, truncated={self.truncated}, "
            f"frames={len(self.codes)})"
        )

    @cached_property
    def audio(self) -> npt.NDArray[np.float32]:
        """The sound, [samples], mono. Decoded when it is first asked for, and then kept.

        Raises:
            MissingExtraError: no ONNX runtime is installed.
        """
        return self._decode(self.codes)

    @property
    def duration(self) -> float:
        """Length of the sound in seconds, the release included."""
        return len(self.audio) / self.sample_rate

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the sound to a .wav (24 bit) or .flac file, whole or not at all, and returns its path.

        Equal notes make byte-identical files.

        Raises:
            InvalidRequestError: the file name ends in something else.
            OSError: the file cannot be written.
        """
        return write_audio(path, self.audio, self.sample_rate)
