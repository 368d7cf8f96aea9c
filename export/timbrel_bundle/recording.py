"""A recording of one note, brought to what the timbre encoder was trained on: mono, trimmed, at one level."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import checked_rate, resample
from timbrel_bundle.errors import AudioError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Audio = npt.NDArray[np.float32]

MAX_CHANNELS = 32

SILENCE_PEAK = 1e-4
"""Nothing louder than this, 80 dB below full scale, is no recording of a note."""

SILENCE = 1e-2
"""Of the peak. What lies before the first sample above it and behind the last is silence: the noise of a room
is mostly lower than this, 40 dB below the note. Left in, it would be heard as a part of the note."""

LEAD_SECONDS = 0.005
"""Kept before the note, so that no attack is cut into. Training notes begin with as much at most."""

TAIL_SECONDS = 0.01
"""Kept behind it."""

MIN_SECONDS = 0.05
"""Of sound. A few frames are needed to hear an attack and what follows."""

PEAK = 0.1
"""Every recording is scaled to this peak, the median of training notes. The encoder takes level for a part of
the timbre, and how far a recording was turned up says nothing of the instrument: left 12 dB louder or softer,
86 % of training notes lie nearest to their own instrument, scaled to one peak 93 %, as at their own level."""


def prepare_recording(
    audio: npt.NDArray[Any], sample_rate: int, spec: pb.CodecSpec, max_seconds: float
) -> Audio:
    """The sound of a recording alone: float32 [S] at the codec's sample rate, its peak at PEAK.

    What it returns, given to it again, stays as it is but for rounding.

    Args:
        audio: [samples] or [samples, channels] of any level, float or integer.
        sample_rate: its samples per second.
        spec: the codec's.
        max_seconds: what comes later is cut off.

    Raises:
        AudioError: of another shape or type, not finite, silent, or with less than MIN_SECONDS of sound.
    """
    mono = _at_peak(fold(_checked(audio)), 1.0)
    sound = trim(mono, checked_rate(sample_rate))
    if len(sound) < MIN_SECONDS * sample_rate:
        seconds = len(sound) / sample_rate
        raise AudioError(f"the audio holds {seconds:.3f} s of sound; {MIN_SECONDS:g} s at least are needed")
    sound = resample(sound[: round(max_seconds * sample_rate)], sample_rate, spec.sample_rate)
    return _at_peak(sound[: round(max_seconds * spec.sample_rate)], PEAK)


def longest_seconds(manifest: pb.Manifest) -> float:
    """What a bundle's notes last at most."""
    return manifest.model.max_frames * manifest.codec.hop_length / manifest.codec.sample_rate


def fold(channels: Audio) -> Audio:
    """Mono [S] of [S, C]: the mean, or the loudest channel where channels cancel by more than 3 dB."""
    if channels.shape[1] == 1:
        return channels[:, 0]
    levels = np.sqrt(np.mean(np.square(channels, dtype=np.float64), axis=0))
    total = channels.sum(axis=1, dtype=np.float64)
    if np.sqrt(np.mean(np.square(total))) < levels.max() * 0.5**0.5:
        return channels[:, int(levels.argmax())]
    return np.asarray(total / channels.shape[1], dtype=np.float32)


def trim(audio: Audio, sample_rate: int) -> Audio:
    """Audio [S], not all zeros, without the silence before and after its sound."""
    sounding = np.abs(audio) >= SILENCE * np.abs(audio).max()
    first = int(np.argmax(sounding)) - round(LEAD_SECONDS * sample_rate)
    last = len(audio) - int(np.argmax(sounding[::-1])) + round(TAIL_SECONDS * sample_rate)
    return audio[max(0, first) : last]


def _checked(audio: npt.NDArray[Any]) -> Audio:
    """Finite samples, float32 [S, C], S and C at least 1."""
    samples = np.asarray(audio)
    if samples.dtype.kind not in "fiu":
        raise AudioError(f"audio of type {samples.dtype}: float or integer samples are needed")
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS):
        raise AudioError(
            f"audio of shape {list(samples.shape)}: [samples], or [samples, channels] with up to "
            f"{MAX_CHANNELS} channels, is needed"
        )
    if len(samples) == 0:
        raise AudioError("the audio is empty")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is told below
        channels = samples.reshape(len(samples), -1).astype(np.float32)
    if not np.isfinite(channels).all():
        raise AudioError("the audio holds samples that are not numbers (NaN or infinity)")
    return channels


def _at_peak(audio: Audio, peak: float) -> Audio:
    """The audio [S] scaled to that peak. Raises AudioError where it is silent."""
    loudest = float(np.abs(audio).max())
    if loudest < SILENCE_PEAK:
        raise AudioError(f"the audio is silent: its loudest sample is {loudest:.1g}, of a full scale of 1")
    return audio * np.float32(peak / loudest)
