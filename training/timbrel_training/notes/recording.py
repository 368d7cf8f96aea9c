"""Reads recorded notes, folds them to mono, and finds where they sound and when their keys were let go.

The level of a note in dB falls along straight lines: slowly while the key is held (not at all on an organ,
steadily on a piano), then fast once it is let go. So the bend between two fitted lines is the release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from timbrel_training.notes.note import SourceError

DECAY = 1e-3
"""A note has died away 60 dB below its own peak."""
FLOOR = 1e-5
"""Anything below this (-100 dB of full scale) is silence, whatever the note's peak."""
BLOCK_SECONDS = 0.01
ENDED_DB = -40.0
"""A release is over where the level is below the peak by this: what follows may be the room's noise. A file
that ends louder was cut off while the note still sounded."""
RISEN_DB = -3.0
"""The attack is over where the level first comes this near to its peak."""
MIN_RELEASE_DB = 20.0
"""A release takes the level down by at least this."""
STEEPER = 3.0
"""The level falls this many times faster in a release than before; a plain decay has no such bend."""
MAX_LOSS_DB = 3.0
"""The channels cancel where their sum is more than this below the louder one."""
MOST_SAMPLES = 1 << 24
"""Of a recording: some six minutes at 48 kHz. A small file of silence can unpack to as many as it likes."""
BYTES_OF_SOUND = re.compile(r"^ *(?:data|SSND) : (\d+) \(should be (\d+)\)$", re.MULTILINE)
FRAMES_OF_SOUND = re.compile(r"frame count (\d+) does not match value from 'ds64' chunk of (\d+)")
"""By these lines of its log libsndfile says that a file holds less or more sound than its header promises."""
UNKNOWN_SIZE = 0x7FFF0000
"""Sizes from here up stand for "not known yet": writers that cannot seek put them there."""
ONSET_LEAD_SECONDS = 0.002
"""Kept before the first sample that sounds, so as not to cut into an attack."""
OFFSET = 0.01
"""Share of the peak: where mean and median are beyond it, the recording has a DC offset."""
NOTE_PEAK, ROOM_PEAK = 0.126, 0.08
"""Shares of the peak, 18 and 22 dB below it: what steadily stays below the second until a block passes the
first is the noise of a room, as `locate` hears it, too."""
LEAST_ROOM_BLOCKS = 4
ROOM_RISES = 2.0
"""By so much the later half of a room's noise is above the earlier at most: a soft attack rises by more."""
ABOVE_ROOM = 1.5
"""A note begins where a sample passes the loudest of the noise before it by this factor."""


def sounding_samples(audio: NDArray[np.float32], sample_rate: int) -> int:
    """Returns how many leading samples to keep: to the end of the last 10 ms that sound."""
    peaks = _peaks(audio, sample_rate)
    sounding = np.flatnonzero(peaks > max(FLOOR, DECAY * float(peaks.max(initial=0.0))))
    return min(len(audio), (int(sounding[-1]) + 1) * _block(sample_rate)) if len(sounding) else 0


def _block(sample_rate: int) -> int:
    return max(1, int(sample_rate * BLOCK_SECONDS))


def _peaks(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns the peak of each 10 ms, the last perhaps shorter."""
    block = _block(sample_rate)
    return np.abs(np.pad(audio, (0, -len(audio) % block))).reshape(-1, block).max(axis=1)


def fade_out(audio: NDArray[np.float32], n_samples: int) -> NDArray[np.float32]:
    """Returns a copy of audio [samples] whose last `n_samples` fade to zero along a raised cosine."""
    n_samples = min(n_samples, len(audio))
    faded = audio.copy()
    ramp = 0.5 + 0.5 * np.cos(np.pi * np.arange(1, n_samples + 1) / n_samples)
    faded[len(audio) - n_samples :] *= ramp.astype(np.float32)
    return faded


@dataclass(frozen=True)
class MonoFold:
    """Weights of the left and right channel. One fold serves all of a cell: its timbre must not jump."""

    left: float
    right: float

    def __call__(self, stereo: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns mono audio [samples] of stereo audio [2, samples]."""
        mono: NDArray[np.float32] = np.float32(self.left) * stereo[0] + np.float32(self.right) * stereo[1]
        return mono


MEAN_FOLD = MonoFold(0.5, 0.5)
# One channel alone is scaled to the level at which two unrelated channels of its loudness would fold.
LEFT_FOLD = MonoFold(0.5**0.5, 0.0)
RIGHT_FOLD = MonoFold(0.0, 0.5**0.5)


def choose_fold(stereo: NDArray[np.float32]) -> MonoFold:
    """Returns the mean of both channels of [2, samples], or the louder one alone where they cancel."""
    left, right = (float(np.sqrt(np.mean(np.square(channel, dtype=np.float64)))) for channel in stereo)
    total = float(np.sqrt(np.mean(np.square(stereo.sum(axis=0), dtype=np.float64))))
    if total >= max(left, right) * 10 ** (-MAX_LOSS_DB / 20):
        return MEAN_FOLD
    return LEFT_FOLD if left >= right else RIGHT_FOLD


@contextmanager
def open_recording(path: Path) -> Iterator[soundfile.SoundFile]:
    """Opens a file that libsndfile knows. Raises SourceError, when it is read, too: it is missing, cut short
    or corrupt, or has more than two channels."""
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    try:
        with soundfile.SoundFile(path) as file:
            if file.channels > 2:
                raise SourceError(f"{path}: has {file.channels} channels, only mono and stereo are notes")
            if _is_cut_short(file.extra_info):
                raise SourceError(
                    f"{path}: is cut short, it lacks sound that its header promises; copy or load it again"
                )
            yield file
    except UnicodeEncodeError:
        raise SourceError(f"{str(path)!r}: not a name in UTF-8; rename the file or its folder") from None
    except (soundfile.SoundFileError, OSError) as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise SourceError(f"{path}: not a readable sound file ({reason})") from None


def _is_cut_short(log: str) -> bool:
    """Tells by libsndfile's log of a file, which reads one that is cut short without a word."""
    promises = [(int(promised), int(found)) for promised, found in BYTES_OF_SOUND.findall(log)]
    promises += [(int(promised), int(found)) for found, promised in FRAMES_OF_SOUND.findall(log)]
    return any(found < promised < UNKNOWN_SIZE for promised, found in promises)


def read_recording(path: Path) -> tuple[NDArray[np.float32], int]:
    """Returns mono audio [samples], without a DC offset, and the sample rate in Hz of a file that libsndfile
    knows. Raises SourceError: as `open_recording`; or it is empty, too long, or has samples that are no
    numbers."""
    with open_recording(path) as file:
        sample_rate = file.samplerate
        audio = file.read(MOST_SAMPLES + 1, dtype="float32", always_2d=True)
    if not len(audio):
        raise SourceError(f"{path}: holds no audio")
    if len(audio) > MOST_SAMPLES:
        longest = MOST_SAMPLES / sample_rate
        raise SourceError(f"{path}: lasts longer than {longest:.0f} s; a recording of one note is needed")
    if not np.isfinite(audio).all():
        raise SourceError(f"{path}: has samples that are NaN or infinite; save it again")
    mono: NDArray[np.float32] = audio[:, 0] if audio.shape[1] == 1 else choose_fold(audio.T)(audio.T)
    mean = mono.mean(dtype=np.float64)  # a click in silence has one, but half of its samples are at 0
    if min(abs(mean), abs(np.median(mono))) > OFFSET * np.abs(mono).max():
        mono = mono - np.float32(mean)
    return mono, int(sample_rate)


def trim_onset(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns audio [samples] without the silence, or the noise of a room, before the sound begins."""
    level, peaks = np.abs(audio), _peaks(audio, sample_rate)
    loudest = float(level.max(initial=0.0))
    limit = max(FLOOR, DECAY * loudest)
    n_room = int(np.argmax(peaks >= NOTE_PEAK * loudest)) if len(peaks) else 0
    if n_room >= LEAST_ROOM_BLOCKS:
        early, late = np.median(peaks[: n_room // 2]), np.median(peaks[n_room // 2 : n_room])
        if max(early, late) <= ROOM_PEAK * loudest and late <= ROOM_RISES * early:
            limit = max(limit, ABOVE_ROOM * float(peaks[: n_room // 2].max()))
    sounding = np.flatnonzero(level > limit)
    first = int(sounding[0]) if len(sounding) else 0
    return audio[max(0, first - int(ONSET_LEAD_SECONDS * sample_rate)) :]


@dataclass(frozen=True)
class Hold:
    """The time for which a recording's key was held."""

    seconds: float  # from the first sample until the key is let go, or the sound has died away
    cut: bool  # the note still sounds where the recording ends: how long it would last is unknown


def find_hold(audio: NDArray[np.float32], sample_rate: int) -> Hold:
    """Finds when the key was let go, judged by the level alone, in mono [samples] from the onset on.

    A sound that is cut off, or that dies away without a bend (plucked, struck), counts as held to its end.
    Silence may follow the sound.
    """
    seconds = sounding_samples(audio, sample_rate) / sample_rate
    level = _level(audio, sample_rate)
    if len(level) < 6:
        return Hold(seconds, cut=False)
    if level[-1] > ENDED_DB:
        return Hold(seconds, cut=True)
    start = int(np.flatnonzero(level > RISEN_DB)[0])
    bend = _bend(level[start:])
    return Hold(seconds if bend is None else min(seconds, (start + bend) * BLOCK_SECONDS), cut=False)


def _level(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """Returns the RMS level of each 10 ms block in dB below the loudest one, no lower than ENDED_DB."""
    block = _block(sample_rate)
    blocks = audio[: len(audio) // block * block].reshape(-1, block).astype(np.float64)
    power = np.square(blocks).mean(axis=1) + 1e-20
    return np.maximum(10.0 * np.log10(power / power.max(initial=1e-20)), ENDED_DB)


def _bend(level: NDArray[np.float64]) -> int | None:
    """Finds the block from which on the level [blocks] falls to its end in a release, or None."""
    level = level[: int(np.flatnonzero(level > ENDED_DB)[-1]) + 2]
    candidates = range(2, len(level) - 1)
    if not candidates:
        return None
    fits = [(_line(level[:at]), _line(level[at:])) for at in candidates]
    best = int(np.argmin([before_error + after_error for (_, before_error), (_, after_error) in fits]))
    (before, _), (after, _) = fits[best]
    drop = float(level[candidates[best]] - level[-1])
    if drop < MIN_RELEASE_DB or after > STEEPER * min(before, -MIN_RELEASE_DB / len(level)):
        return None
    return candidates[best]


def _line(level: NDArray[np.float64]) -> tuple[float, float]:
    """Returns slope (dB per block) and sum of squares of the least-squares line through levels [blocks]."""
    time = np.arange(len(level)) - (len(level) - 1) / 2
    centred = level - level.mean()
    slope = float((time @ centred) / (time @ time)) if len(level) > 1 else 0.0
    return slope, float(np.square(centred - slope * time).sum())
