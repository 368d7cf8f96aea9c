"""Audio files and sample rates. Audio is float32 [S], mono, full scale at 1."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from timbrel_bundle.errors import AudioError, one_line

_Sample = TypeVar("_Sample", bound=np.generic)

MAX_SAMPLE_RATE = 768_000
MAX_SAMPLES = 2**25
"""The longest sound that is read, all channels together: 11 minutes of one at 48 kHz. Some kilobytes of FLAC
may stand for hours."""

FULL_SCALE = 2**23
"""Of 24 bits."""

UNKNOWN_FRAMES = 2**40
"""libsndfile gives more than that, some 2^63, where it does not know."""

UNKNOWN_WAV_SIZE = 0x7FFF0000
"""Sizes from here up stand for "not known yet": writers that cannot seek put them there; and, in RF64 files,
for what the chunk `ds64` says."""

CHUNKS = {
    (b"RIFF", b"WAVE"): (b"data", "<"),
    (b"RF64", b"WAVE"): (b"data", "<"),
    (b"FORM", b"AIFF"): (b"SSND", ">"),
    (b"FORM", b"AIFC"): (b"SSND", ">"),
}
"""How files of chunks begin -> the chunk that holds their sound, and the order of a number's bytes."""


def read_audio(path: Path | str, max_samples: int = MAX_SAMPLES) -> tuple[npt.NDArray[np.float32], int]:
    """Reads a sound file as `read_channels` does; several channels are averaged to one: float32 [S]."""
    samples, sample_rate = read_channels(path, max_samples)
    return samples.mean(axis=1, dtype=np.float32), sample_rate


def read_channels(path: Path | str, max_samples: int = MAX_SAMPLES) -> tuple[npt.NDArray[np.float32], int]:
    """Reads a WAV, FLAC or other file that libsndfile knows: float32 [S, channels], S >= 1, and its rate in
    Hz.

    A file of more than `max_samples`, of all channels together, is refused before they are read. Raises
    AudioError: the file is missing, empty, too long, cut short, damaged or in an unknown format.
    """
    with _opened(Path(path)) as sound:
        n_samples = sound.frames * sound.channels
        if n_samples > max_samples:
            raise AudioError(
                f"{path}: says that it holds {n_samples} samples ({_minutes(n_samples, sound)} minutes),"
                f" up to {max_samples} ({_minutes(max_samples, sound)} minutes) are read"
            )
        return _checked(path, sound.read(dtype="float32", always_2d=True)), int(sound.samplerate)


def read_pieces(path: Path | str, seconds: float) -> Iterator[tuple[float, npt.NDArray[np.float32], int]]:
    """Reads a file of any length piece by piece, each of so many seconds, the last perhaps shorter: when it
    begins, in seconds, the sound, float32 [S, channels], and its rate in Hz.

    Raises AudioError as `read_channels` does, or a piece would be of more than MAX_SAMPLES.
    """
    with _opened(Path(path)) as sound:
        step = max(1, round(seconds * sound.samplerate))
        if step * sound.channels > MAX_SAMPLES:
            longest = _minutes(MAX_SAMPLES, sound)
            raise AudioError(
                f"{path}: pieces of {seconds:g} s are too long; up to {longest} minutes are read"
            )
        for number, samples in enumerate(sound.blocks(step, dtype="float32", always_2d=True)):
            yield number * step / sound.samplerate, _checked(path, samples), int(sound.samplerate)


def resample(
    audio: npt.NDArray[np.float32], sample_rate_from: int, sample_rate_to: int
) -> npt.NDArray[np.float32]:
    """Audio float32 [S] at another sample rate (Hz); the very same array where the rates agree. Raises
    AudioError: a sample rate is not a whole number of 1 to MAX_SAMPLE_RATE."""
    rate_from, rate_to = checked_rate(sample_rate_from), checked_rate(sample_rate_to)
    if rate_from == rate_to:
        return audio
    return np.asarray(soxr.resample(audio, rate_from, rate_to, quality="HQ"), dtype=np.float32)


def checked_mono(audio: npt.NDArray[np.floating[Any]], allow_empty: bool = False) -> npt.NDArray[np.float32]:
    """The audio as float32 [S]. Raises AudioError unless it has one axis and finite samples."""
    samples = np.asarray(audio, dtype=np.float32)
    if samples.ndim != 1:
        raise AudioError(f"audio of shape {list(samples.shape)}: mono audio [samples] is needed")
    if samples.size == 0 and not allow_empty:
        raise AudioError("the audio is empty")
    if not np.isfinite(samples).all():
        raise AudioError("the audio holds samples that are not numbers (NaN or infinity)")
    return samples


def checked_rate(sample_rate: int) -> int:
    """The sample rate as an int. Raises AudioError unless it is a whole number in range."""
    if not 0 < sample_rate <= MAX_SAMPLE_RATE or sample_rate != int(sample_rate):
        raise AudioError(
            f"a sample rate of {sample_rate} Hz: a whole number of 1 to {MAX_SAMPLE_RATE} is needed"
        )
    return int(sample_rate)


def whole_samples(audio: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int32]:
    """Scales samples to whole numbers of 24 bits, rounded and clipped. Left to libsndfile, those of a WAV
    file are rounded down."""
    scaled = np.clip(np.rint(audio * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1)
    return np.asarray(scaled, dtype=np.int32)


def never_empty(samples: npt.NDArray[_Sample], file_format: str) -> npt.NDArray[_Sample]:
    """Returns the samples [S, ...] to write to a file of this format, by libsndfile's name: one silent sample
    for none where that is FLAC. Of none libsndfile writes no bytes at all, and reads no FLAC file."""
    if len(samples) or file_format != "FLAC":
        return samples
    return np.zeros((1, *samples.shape[1:]), samples.dtype)


def missing_bytes(file: BinaryIO) -> int:
    """Returns how many bytes of sound a WAV or AIFF file, be it RF64 or AIFF-C, lacks of those its header
    promises; 0 for other formats.

    It is checked here because libsndfile reads a file that is cut short without a word.
    """
    file.seek(0)
    head = file.read(12)
    if (layout := CHUNKS.get((head[:4], head[8:]))) is None:
        return 0
    sound, order = layout
    size_of_file = file.seek(0, 2)
    position, size_of_long = 12, 0
    while position + 8 <= size_of_file:
        file.seek(position)
        name, size = struct.unpack(f"{order}4sI", file.read(8))
        if name == b"ds64" and len(sizes := file.read(16)) == 16:
            size_of_long = int.from_bytes(sizes[8:], "little")
        if name == sound:
            if size >= UNKNOWN_WAV_SIZE:
                size = size_of_long if size_of_long < UNKNOWN_FRAMES else 0
            n_missing: int = position + 8 + size - size_of_file
            return max(0, n_missing)
        position += 8 + size + size % 2
    return 0


@contextmanager
def _opened(path: Path) -> Iterator[soundfile.SoundFile]:
    """A file that is whole as far as its header tells. Raises AudioError, also of what goes wrong inside."""
    if not path.is_file():
        raise AudioError(
            f"{path}: {'is a folder, not an audio file' if path.is_dir() else 'there is no such file'}"
        )
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise AudioError(f"{path}: the file is empty")
            if n_missing := missing_bytes(file):
                raise AudioError(f"{path}: is cut short, the last {n_missing} bytes of its sound are missing")
            file.seek(0)
            with soundfile.SoundFile(file) as sound:
                if sound.frames > UNKNOWN_FRAMES:
                    raise AudioError(f"{path}: does not say how long it is, as what was written to a pipe")
                if sound.frames == 0:
                    raise AudioError(f"{path}: holds no sound")
                yield sound
    except OSError as error:
        raise AudioError(f"{path}: cannot be read ({error.strerror})") from None
    except soundfile.SoundFileError as error:
        reason = f"is not an audio file that can be read ({_reason(error)})"
        raise AudioError(f"{path}: {reason}; WAV, AIFF, FLAC, Ogg and MP3 files are") from None


def _checked(path: Path | str, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if samples.size == 0:
        raise AudioError(f"{path}: holds no sound")
    if not np.isfinite(samples).all():
        raise AudioError(f"{path}: holds samples that are not numbers (NaN or infinity)")
    return samples


def _minutes(n_samples: int, sound: soundfile.SoundFile) -> str:
    return f"{n_samples / sound.channels / sound.samplerate / 60:.3g}"


def _reason(error: Exception) -> str:
    """libsndfile's own words, without the handle that soundfile puts before them."""
    return one_line(getattr(error, "error_string", error))
