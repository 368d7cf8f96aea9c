"""Recordings of one note: brought to what the timbre encoder was trained on, and located on the timbre map.

Recordings are folded to mono, trimmed and scaled to one peak. The graphs run on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import checked_rate, resample
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import Audio
from timbrel_bundle.errors import AudioError, BundleError
from timbrel_bundle.layout import TIMBRE_ENCODER, TIMBRE_REFERENCES
from timbrel_bundle.manifest import heard_seconds
from timbrel_bundle.request_fields import DISC_SLACK
from timbrel_bundle.runtime import session_options
from timbrel_bundle.timbre_map import by_distance
from timbrel_bundle.timbre_references import Recogniser
from timbrel_bundle.yin import wanders
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_CHANNELS = 32

SILENCE_PEAK = 1e-4
"""Nothing louder than this, 80 dB below full scale, is no recording of a note."""

SILENCE = 1e-2
"""Share of the peak: what lies before the first sample above it and behind the last is silence."""

OFFSET = 0.01
"""Share of the peak: where mean and median are beyond it, a recording has a DC offset, which is no sound."""

ROOM_BLOCK_SECONDS = 0.01
ROOM_PEAK, NOTE_PEAK = 0.08, 0.126
"""Shares of the peak, 22 and 18 dB below it: what stays below the one until a block passes the other, and
neither rises nor falls, is the noise of a room. Left in, it would count as a part of the note."""
ROOM_RISES_BEFORE, ROOM_RISES_BEHIND = 2.0, 1.25
"""By this factor its later half may be above its earlier one, as seen from the recording's end: a soft attack
rises by more, and so does a note that dies away, seen from behind."""
LEAST_BLOCKS_BEFORE, LEAST_BLOCKS_BEHIND = 4, 10
ABOVE_ROOM = 1.5
"""The note begins where a sample passes the room's loudest by this factor."""

LEAD_SECONDS = 0.005
"""So much is kept before the note that no attack is cut into. Training notes begin with as much at most."""

TAIL_SECONDS = 0.01
"""So much is kept behind it."""

MIN_SECONDS = 0.05
"""A recording needs as much sound: a few frames, so that an attack and what follows can be told."""

PEAK = 0.1
"""Every recording is scaled to this peak, the median of training notes: how far it was turned up says nothing
of the instrument. Timbre encoders that take audio hear levels relative to the loudest anyway."""

SEMITONE = 2.0 ** (1.0 / 12.0)
START_SECONDS = 3.0
"""So much is heard of a part of a recording, and of the whole a semitone lower and higher."""

PART_BLOCK_SECONDS = 0.027
LEAST_BLOCKS_PAUSED, LEAST_BLOCKS_PLAYED = 3, 6
PAUSE_LEVEL, PART_LEVEL = 10.0 ** (-35.0 / 20.0), 10.0 ** (-20.0 / 20.0)
"""Shares of the loudest block's level: what stays below the one for long enough is a pause, and what never
passes the other is no part."""


@dataclass(frozen=True, eq=False)
class Heard:
    """The timbre encoder's account of a recording."""

    timbre: tuple[float, float]
    """Its point (x, y) in the unit disc: `heard_at`, unless another instrument than the one with the largest
    share is nearest to that; then the latter's own point."""
    heard_at: tuple[float, float]
    """Where the encoder puts it."""
    embedding: npt.NDArray[np.float32] | None = None
    """Of length 1, what instruments are told by: the mean direction of the embeddings of the recording, its
    `transpositions` and its `parts`. None for bundles without references."""
    shares: npt.NDArray[np.float64] | None = None
    """Of each instrument, in the map's order."""
    near: bool | None = None
    """Whether the recording is like any of them, and its pitch does not wander, as speech's does."""


class TimbreEncoder:
    """Says where on the timbre map a recording lies. Safe to share between threads."""

    def __init__(self, bundle: Bundle, n_threads: int = 0) -> None:
        """Loads the graph of the timbre encoder; `n_threads` are those within an operator, 0 one per core.

        Raises BundleError: the graph or its weights are missing, damaged or do not fit the manifest;
        RuntimeMissingError: onnxruntime is not installed.
        """
        self._map = bundle.timbre_map
        references = bundle.timbre_references
        self._recogniser = None
        if references is not None:
            self._recogniser = Recogniser(references, [point.instrument for point in self._map.points])
        self._outputs = ["timbre"] if references is None else ["timbre", "embedding"]
        self._spec = bundle.manifest.codec
        self._max_seconds = longest_seconds(bundle.manifest)
        self._path = bundle.path / TIMBRE_ENCODER
        self._session = bundle.session(
            TIMBRE_ENCODER,
            options=session_options(n_threads),
            inputs=["audio", "n_samples"],
            outputs=self._outputs,
        )
        if self._recogniser is not None:
            shapes = {output.name: output.shape for output in self._session.get_outputs()}
            if (width := (shapes["embedding"] or [0])[-1]) != (stated := self._recogniser.width):
                raise BundleError(
                    bundle.path / TIMBRE_REFERENCES,
                    f"has references of {stated} numbers, the encoder's embeddings have {width}",
                )

    def locate(self, audio: npt.NDArray[Any], sample_rate: int) -> tuple[float, float]:
        """The point (x, y) in the unit disc of a recording of one note; see `hear`."""
        return self.hear(audio, sample_rate).timbre

    def hear(self, audio: npt.NDArray[Any], sample_rate: int) -> Heard:
        """Locates a recording of one note, and tells its instrument where the bundle has references.

        The audio is [samples] or [samples, channels], at any level, with or without silence before and after.
        Raises AudioError: of another shape, not finite, silent or too short (see `prepare_recording`);
        BundleError: the graph fails, or gives no points of the map.
        """
        sound = prepare_recording(audio, sample_rate, self._spec, self._max_seconds)
        rate, sounds = self._spec.sample_rate, [sound]
        if self._recogniser is not None:
            sounds += [*transpositions(sound, rate), *parts(sound, rate)]
        timbre, *rest = self._run(sounds)
        x, y = (float(value) for value in timbre[0])
        if not math.hypot(x, y) <= 1.0 + DISC_SLACK:
            raise BundleError(self._path, f"gives ({x:g}, {y:g}), which is no point of the disc")
        if self._recogniser is None:
            return Heard((x, y), (x, y))
        total = rest[0].sum(axis=0)
        embedding = np.asarray(total / max(np.linalg.norm(total), 1e-9), np.float32)
        shares, is_near = self._recogniser.shares(embedding)
        near = is_near and not wanders(sound, rate)
        likeliest = self._map.points[int(shares.argmax())]
        nearest = by_distance(self._map, x, y)[0][1]
        found = (likeliest.x, likeliest.y) if near and nearest.instrument != likeliest.instrument else (x, y)
        return Heard(found, (x, y), embedding, shares, near)

    def _run(self, sounds: Sequence[Audio]) -> list[npt.NDArray[np.float32]]:
        """The points [N, 2] of N prepared recordings and, with references, their embeddings [N, width]."""
        n_samples = np.array([len(each) for each in sounds])
        heard = np.zeros((len(sounds), n_samples.max()), np.float32)
        for row, each in zip(heard, sounds, strict=True):
            row[: len(each)] = each
        try:
            found = self._session.run(self._outputs, {"audio": heard, "n_samples": n_samples})
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise BundleError(self._path, f"onnxruntime cannot run it ({error})") from None
        widths = [2] if self._recogniser is None else [2, self._recogniser.width]
        for name, values, width in zip(self._outputs, found, widths, strict=True):
            if values.shape != (len(sounds), width):
                raise BundleError(
                    self._path, f"gives {name!r} the shape {list(values.shape)}, not {[len(sounds), width]}"
                )
            if not np.isfinite(values).all():
                raise BundleError(self._path, f"gives {name!r} numbers that are not finite")
        return list(found)


def transpositions(sound: Audio, sample_rate: int) -> list[Audio]:
    """Returns the start of a prepared recording [S] a semitone lower and a semitone higher.

    The instrument stays the same. What an encoder makes of the very pitch does not, and the mean of the
    embeddings holds less of it.
    """
    start = sound[: round(START_SECONDS * sample_rate)]
    rates = (round(sample_rate / SEMITONE), round(sample_rate * SEMITONE))
    return [resample(start, rate, sample_rate) for rate in rates]


def parts(sound: Audio, sample_rate: int) -> list[Audio]:
    """Returns the first and the last part of a prepared recording [S] that stops and begins again, as one of
    several notes does, each as far as it is heard; nothing of any other recording."""
    size = round(PART_BLOCK_SECONDS * sample_rate)
    blocks = sound[: len(sound) // size * size].reshape(-1, size)
    if not len(blocks):
        return []
    levels = np.sqrt(np.mean(np.square(blocks), axis=1))
    sounding = levels >= PAUSE_LEVEL * levels.max()
    begins, ends = np.flatnonzero(np.diff(sounding, prepend=False, append=False)).reshape(-1, 2).T
    pauses = begins[1:] - ends[:-1] >= LEAST_BLOCKS_PAUSED
    spans = zip(begins[np.append(True, pauses)], ends[np.append(pauses, True)], strict=True)
    found = [
        sound[begin * size : end * size]
        for begin, end in spans
        if end - begin >= LEAST_BLOCKS_PLAYED and levels[begin:end].max() > PART_LEVEL * levels.max()
    ]
    longest = round(START_SECONDS * sample_rate)
    return [found[0][:longest], found[-1][:longest]] if len(found) > 1 else []


def prepare_recording(
    audio: npt.NDArray[Any], sample_rate: int, spec: pb.CodecSpec, max_seconds: float
) -> Audio:
    """The sound of a recording alone: float32 [S] at the codec's sample rate, its peak at PEAK.

    What it returns, given to it again, stays as it is but for rounding. The audio is [samples] or [samples,
    channels] of any level, float or integer; what comes after `max_seconds` is cut off. Raises AudioError: of
    another shape or type, not finite, silent, or with less than MIN_SECONDS of sound.
    """
    rate = checked_rate(sample_rate)
    sound = _sound_alone(fold(_checked(audio)), rate)
    sound = resample(sound[: round(max_seconds * rate)], rate, spec.sample_rate)
    sound = sound[: round(max_seconds * spec.sample_rate)]
    # Shorter, or at another rate, it may have more around it that is told from its sound.
    n_before = 0
    while len(sound) != n_before:
        n_before, sound = len(sound), _sound_alone(sound, spec.sample_rate)
    return _at_peak(sound, PEAK)


def _sound_alone(mono: Audio, sample_rate: int) -> Audio:
    """Audio [S] without an offset, silence or a room around it, its peak at 1. Raises AudioError: too little
    is left."""
    sound = trim(_at_peak(_without_offset(_at_peak(mono, 1.0)), 1.0), sample_rate)
    if len(sound) < MIN_SECONDS * sample_rate:
        seconds = len(sound) / sample_rate
        raise AudioError(f"the audio holds {seconds:.3f} s of sound; {MIN_SECONDS:g} s at least are needed")
    return sound


def longest_seconds(manifest: pb.Manifest) -> float:
    """Returns how long a bundle's notes last at most."""
    return heard_seconds(manifest.model.max_frames, manifest.codec)


def fold(channels: Audio) -> Audio:
    """Mono [S] of [S, C]: the mean, or the loudest channel where channels cancel by more than 3 dB."""
    if channels.shape[1] == 1:
        return channels[:, 0]
    levels = np.sqrt(np.mean(np.square(channels, dtype=np.float64), axis=0))
    total = channels.sum(axis=1, dtype=np.float64)
    if np.sqrt(np.mean(np.square(total))) < levels.max() * 0.5**0.5:
        return channels[:, int(levels.argmax())]
    return np.asarray(total / channels.shape[1], dtype=np.float32)


def _without_offset(audio: Audio) -> Audio:
    """Audio [S] of peak 1 without its DC offset. Of a click in silence, half of the samples are at 0."""
    mean = audio.mean(dtype=np.float64)
    return audio - np.float32(mean) if min(abs(mean), abs(np.median(audio))) > OFFSET else audio


def trim(audio: Audio, sample_rate: int) -> Audio:
    """Audio [S], not all zeros, without the silence or the noise of a room before and after its sound."""
    lead, tail = round(LEAD_SECONDS * sample_rate), round(TAIL_SECONDS * sample_rate)
    sounding = np.abs(audio) >= SILENCE * np.abs(audio).max()
    first, last = int(np.argmax(sounding)) - lead, len(audio) - int(np.argmax(sounding[::-1])) + tail
    sound = audio[max(0, first) : last]
    before = _room_samples(sound, sample_rate, LEAST_BLOCKS_BEFORE, ROOM_RISES_BEFORE) - lead
    behind = _room_samples(sound[::-1], sample_rate, LEAST_BLOCKS_BEHIND, ROOM_RISES_BEHIND) - tail
    return sound[max(0, before) : len(sound) - max(0, behind)]


def _room_samples(sound: Audio, sample_rate: int, least_blocks: int, rises: float) -> int:
    """Counts the samples at the start of the sound [S] that are a room's noise; 0 where that is not told."""
    size = max(1, round(ROOM_BLOCK_SECONDS * sample_rate))
    if len(sound) < 2 * size:
        return 0
    peaks = np.abs(sound[: len(sound) // size * size]).reshape(-1, size).max(axis=1)
    n_room = int(np.argmax(peaks >= NOTE_PEAK * peaks.max()))
    if n_room < least_blocks:
        return 0
    early, late = np.median(peaks[: n_room // 2]), np.median(peaks[n_room // 2 : n_room])
    if max(early, late) > ROOM_PEAK * peaks.max() or late > rises * early:
        return 0
    loudest = peaks[: n_room // 2].max()
    return int(np.argmax(np.abs(sound[: (n_room + 1) * size]) > ABOVE_ROOM * loudest))


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
