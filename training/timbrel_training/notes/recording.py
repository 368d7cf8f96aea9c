"""Reading one recorded note from a sound file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from timbrel_training.notes.envelope import DECAY, FLOOR
from timbrel_training.notes.mono import choose_fold
from timbrel_training.notes.note import SourceError

ONSET_LEAD_SECONDS = 0.002
"""Kept before the first sample that sounds, so as not to cut into an attack."""


def read_recording(path: Path) -> tuple[NDArray[np.float32], int]:
    """Mono audio [samples] and the sample rate in Hz of a WAV or FLAC file.

    Raises:
        SourceError: the file is missing, corrupt, empty, or has more than two channels.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    try:
        audio, sample_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise SourceError(f"{path}: not a readable WAV or FLAC file ({reason})") from None
    n_samples, n_channels = audio.shape
    if not n_samples:
        raise SourceError(f"{path}: holds no audio")
    if n_channels > 2:
        raise SourceError(f"{path}: has {n_channels} channels, only mono and stereo are notes")
    mono: NDArray[np.float32] = audio[:, 0] if n_channels == 1 else choose_fold(audio.T)(audio.T)
    return mono, int(sample_rate)


def trim_onset(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Audio [samples] without the silence before the sound begins."""
    level = np.abs(audio)
    sounding = np.flatnonzero(level > max(FLOOR, DECAY * float(level.max(initial=0.0))))
    first = int(sounding[0]) if len(sounding) else 0
    return audio[max(0, first - int(ONSET_LEAD_SECONDS * sample_rate)) :]
