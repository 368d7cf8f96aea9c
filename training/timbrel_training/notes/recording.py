"""Reading one recorded note from a sound file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from timbrel_training.notes.note import SourceError

DECAY = 1e-3
"""A note has died away 60 dB below its own peak."""
FLOOR = 1e-5
"""Below this (-100 dB of full scale) is silence, whatever the note's peak."""
BLOCK_SECONDS = 0.01


def sounding_samples(audio: NDArray[np.float32], sample_rate: int) -> int:
    """How many leading samples of audio [samples] to keep: to the end of the last 10 ms that sound."""
    block = max(1, int(sample_rate * BLOCK_SECONDS))
    n_blocks = -(-len(audio) // block)
    padded = np.zeros(n_blocks * block, np.float32)
    padded[: len(audio)] = np.abs(audio)
    peaks = padded.reshape(n_blocks, block).max(axis=1)
    sounding = np.flatnonzero(peaks > max(FLOOR, DECAY * float(peaks.max(initial=0.0))))
    return min(len(audio), (int(sounding[-1]) + 1) * block) if len(sounding) else 0


def fade_out(audio: NDArray[np.float32], n_samples: int) -> NDArray[np.float32]:
    """A copy of audio [samples] whose last `n_samples` fade to zero along a raised cosine."""
    n_samples = min(n_samples, len(audio))
    faded = audio.copy()
    ramp = 0.5 + 0.5 * np.cos(np.pi * np.arange(1, n_samples + 1) / n_samples)
    faded[len(audio) - n_samples :] *= ramp.astype(np.float32)
    return faded


MAX_LOSS_DB = 3.0
"""Where the sum of both channels is more than this below the louder one, they cancel."""


@dataclass(frozen=True)
class MonoFold:
    """Weights of the left and right channel. One fold serves all of a cell: its timbre must not jump."""

    left: float
    right: float

    def __call__(self, stereo: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mono audio [samples] of stereo audio [2, samples]."""
        mono: NDArray[np.float32] = np.float32(self.left) * stereo[0] + np.float32(self.right) * stereo[1]
        return mono


MEAN_FOLD = MonoFold(0.5, 0.5)
# One channel alone is scaled to the level at which two unrelated channels of its loudness would fold.
LEFT_FOLD = MonoFold(0.5**0.5, 0.0)
RIGHT_FOLD = MonoFold(0.0, 0.5**0.5)


def choose_fold(stereo: NDArray[np.float32]) -> MonoFold:
    """The mean of both channels of [2, samples], or the louder one alone where they cancel."""
    left, right = (float(np.sqrt(np.mean(np.square(channel, dtype=np.float64)))) for channel in stereo)
    total = float(np.sqrt(np.mean(np.square(stereo.sum(axis=0), dtype=np.float64))))
    if total >= max(left, right) * 10 ** (-MAX_LOSS_DB / 20):
        return MEAN_FOLD
    return LEFT_FOLD if left >= right else RIGHT_FOLD


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
