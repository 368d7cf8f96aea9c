"""Sound on its way out: WAV, FLAC and Ogg Vorbis files, written whole or not at all, and the loudspeaker."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from timbrel.errors import MissingExtraError, TimbrelError, refusal
from timbrel_bundle.audio import checked_rate, never_empty, resample, whole_samples
from timbrel_bundle.errors import AudioError
from timbrel_bundle.files import atomic_write

SAMPLE_RATES = (8_000, 192_000)
"""Hz: what all three formats hold, and players play."""

MAX_CHANNELS = 8
"""What all three formats hold."""

BLOCK_SAMPLES = 65_536
"""Vorbis' encoder recurses over what it is given at once, and long pieces overflow its stack."""


FORMATS = {".wav": ("WAV", "PCM_24"), ".flac": ("FLAC", "PCM_24"), ".ogg": ("OGG", "VORBIS")}
"""File name ending -> libsndfile's names of the format and of its samples."""

Sound = npt.NDArray[np.float32]
"""[samples] or [samples, channels], full scale at 1."""


def check_audio_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a sound can be written there: worth asking before a long piece of work. Raises
    InvalidRequestError: the ending is none of .wav, .flac and .ogg, or there is no such folder, or none that
    may be written in."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        *others, last = FORMATS
        raise refusal("out", f"{target} must end in {', '.join(others)} or {last}")
    if target.is_dir():
        raise refusal("out", f"{target} is a folder")
    if not target.parent.is_dir():
        reason = "is a file" if target.parent.exists() else "does not exist"
        raise refusal("out", f"the folder {target.parent} {reason}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise refusal("out", f"the folder {target.parent} may not be written to")
    return target


def check_sample_rate(sample_rate: int) -> int:
    """The sample rate (Hz), if files are written at it; raises InvalidRequestError beyond SAMPLE_RATES."""
    lowest, highest = SAMPLE_RATES
    if not lowest <= sample_rate <= highest or sample_rate != int(sample_rate):
        raise refusal(
            "sample_rate", f"{sample_rate} Hz is not allowed; whole numbers of {lowest} to {highest} are"
        )
    return int(sample_rate)


def check_audio_target(path: str | os.PathLike[str], sample_rate: int | None) -> Path:
    """The path, if a sound of this sample rate (Hz; None: whatever it has) can be written there. Raises
    InvalidRequestError: see check_audio_path and check_sample_rate, or the format has no such sample rate."""
    target = check_audio_path(path)
    if sample_rate is not None:
        one_sample = np.zeros((1, 2), dtype=np.float32)
        audio_bytes(one_sample, check_sample_rate(sample_rate), target.suffix.lower())
    return target


def write_audio(
    path: str | os.PathLike[str], audio: Sound, sample_rate: int, file_rate: int | None = None
) -> Path:
    """Writes audio to a .wav, .flac or .ogg file; samples beyond -1..1 are clipped.

    No format carries a time or a name: equal audio makes byte-identical files, but for the random number that
    an Ogg stream is given.

    Args:
        audio: [samples] or [samples, channels].
        sample_rate: its samples per second.
        file_rate: the file's, where it is to be another: resampled by soxr.

    Raises:
        InvalidRequestError: see check_audio_path, check_sample_rate; or the format has no such sample rate.
        AudioError: the audio has another shape, or is not finite.
        OSError: the file cannot be written.
    """
    target = check_audio_path(path)
    if file_rate is not None:
        audio, sample_rate = resampled(audio, sample_rate, check_sample_rate(file_rate)), file_rate
    atomic_write(target, audio_bytes(audio, sample_rate, target.suffix.lower()))
    return target


def audio_bytes(audio: Sound, sample_rate: int, ending: str) -> bytes:
    """The content of a file of this ending; see write_audio."""
    major, subtype = FORMATS[ending]
    samples = never_empty(_checked(audio), major)
    content = io.BytesIO()
    try:
        with soundfile.SoundFile(
            content, "w", checked_rate(sample_rate), samples.shape[1], subtype=subtype, format=major
        ) as file:
            for start in range(0, len(samples), BLOCK_SAMPLES):
                block = _clipped(samples[start : start + BLOCK_SAMPLES])
                file.write(block if subtype == "VORBIS" else whole_samples(block) << 8)
    except soundfile.SoundFileError:
        raise refusal("sample_rate", f"{sample_rate} Hz is none that {major} files can have") from None
    return content.getvalue()


def resampled(audio: Sound, rate_from: int, rate_to: int) -> Sound:
    """The audio at another sample rate (Hz), channel by channel; the very same array where they agree."""
    if rate_from == rate_to or audio.size == 0:
        return audio
    if audio.ndim == 1:
        return resample(audio, rate_from, rate_to)
    return np.stack([resample(np.ascontiguousarray(side), rate_from, rate_to) for side in audio.T], axis=1)


def _checked(audio: Sound) -> Sound:
    """The audio as [samples, channels]."""
    samples = np.asarray(audio, dtype=np.float32)
    shape = list(samples.shape)
    if samples.ndim not in (1, 2):
        raise AudioError(f"audio of shape {shape}: [samples] or [samples, channels] is needed")
    if samples.ndim == 2 and not 1 <= shape[1] <= MAX_CHANNELS:
        allowed = f"[samples, channels] with 1 to {MAX_CHANNELS} is needed"
        raise AudioError(f"audio of shape {shape} has {shape[1]} channels: {allowed}")
    return samples if samples.ndim == 2 else samples[:, np.newaxis]


def _clipped(block: Sound) -> Sound:
    """A block of it within -1..1. A long piece is not copied as a whole."""
    if not np.isfinite(block).all():
        raise AudioError("the audio holds samples that are not numbers (NaN or infinity)")
    return np.clip(block, -1.0, 1.0)


EXTRA = "speaker"


class SpeakerError(TimbrelError):
    """A sound cannot be played on this machine: no PortAudio, or no device that takes it."""


def play(audio: npt.NDArray[np.float32], sample_rate: int, *, wait: bool = True) -> None:
    """Plays audio, and stops what was played before.

    Args:
        audio: [samples] or [samples, channels], full scale at 1.
        sample_rate: its samples per second.
        wait: return when it is over; an interrupt (Ctrl-C) stops it. Otherwise return at once.

    Raises:
        MissingExtraError: sounddevice, which the speaker extra brings, is not installed.
        SpeakerError: the system has no PortAudio, or no device for sound.
    """
    device = _sounddevice()
    try:
        device.play(audio, sample_rate)
        if wait:
            device.wait()
    except KeyboardInterrupt:
        device.stop()
        raise
    except device.PortAudioError as error:
        reason = " ".join(str(error).split())
        raise SpeakerError(f"no sound device plays this at {sample_rate} Hz ({reason})") from None


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError as error:
        raise MissingExtraError("playing on the loudspeaker", EXTRA) from error
    except OSError:
        raise SpeakerError(
            "playing on the loudspeaker needs the system's PortAudio (Debian: apt-get install libportaudio2)"
        ) from None
    return sounddevice
