"""Everything that is measured of a raw note before its instrument is finished, and the log that keeps it."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.library.render import level
from timbrel.library.render.pitch import (
    PARTIAL,
    TrackerPair,
    first_decides,
    is_in_tune,
    strongest_partial,
)
from timbrel_bundle.files import parse_json

MEASURE_VERSION = 8
"""Goes into every line of the log: to be raised where a figure's meaning changes."""

DROP_DB = 60.0
"""A fade is over this far below the level at which the key was let go."""

BAND_FRAME = 2048
"""Samples that are compared at a time, to tell a release from a fade."""

HEARD_DB = 35.0
"""So far down is a release followed."""

TAP_SECONDS = (0.1, 0.2)
"""When a key that is struck quickly comes up again."""

LATE_SHARE = 0.25
"""The end of the hold, as a share of it, whose level is compared with earlier ones."""

FADE_FRAME_SECONDS = 0.01
LEAST_FADE_FRAMES = 4
FADE_HEARD_DB = 45.0
FADE_FLOOR_DB = -75.0
"""A fade is measured where the sound that fades is no softer than that below its begin, or full scale."""

LOWEST_BAND_HZ = 100.0
N_BANDS = 21
"""Thirds of octaves."""


SUSTAINED_DB_PER_SECOND = 6.0
"""A held note that loses no more than this at last may last; what dies away by itself does not."""

STRUCK_DB_PER_SECOND = 3.0
"""Nor does one that loses as much from its attack on, and still does at last: an electric piano's loop would
ring for ever."""

STRUCK_SECONDS = 2.0
"""What is struck dies slower the longer it is held: a note that lasts does so in its first seconds, too."""


@dataclass(frozen=True)
class Measurement:
    """The figures of one raw note, at its own level."""

    pitch: float | None
    """Fractional MIDI note number by the first tracker; None where it hears none."""

    other_pitch: float | None
    """The same by the second; None, too, where it was not asked."""

    trackers: str
    """Names of those that listened, joined by +."""

    loudness: float
    """The loudest 400 ms, in LUFS."""

    true_peak: float
    """Largest amplitude, between the samples too, in dB of full scale."""

    decay: float | None
    """dB lost a second while the key is held; None of a key held for too short."""

    release_seconds: float
    """Time of the fade by DROP_DB that follows the end of the hold."""

    release_shape_db: float
    """How far the release lies from an even fade of the held sound, in thirds of octaves; 0 where none is."""

    rise_db: float
    """How much louder it is at the end of the hold than where a quick key comes up; 0 of a short hold."""

    lasts: bool
    """Whether it keeps its level for as long as the key is held."""

    @property
    def heard(self) -> tuple[float | None, float | None]:
        """The pitch by either tracker."""
        return self.pitch, self.other_pitch


def measure(
    audio: level.Audio,
    trimmed: level.Trimmed,
    sample_rate: int,
    asked: int,
    held_seconds: float,
    trackers: TrackerPair,
) -> Measurement:
    """Measures a note from its audio [samples], as decoded and without its silent ends, beside the MIDI note
    number asked.

    The second tracker is asked only where the first leaves something to decide: it takes three times as long.
    """
    pitch, other, names = _rounded(trackers.one.measure(trimmed.audio, sample_rate)), None, trackers.one.name
    if not first_decides(asked, pitch):
        other, names = _rounded(trackers.other.measure(trimmed.audio, sample_rate)), trackers.name
        if not is_in_tune(asked, pitch, other):
            partial = strongest_partial(asked, (pitch, other), trimmed.audio, sample_rate)
            if partial is not None:
                other, names = _rounded(partial), f"{trackers.one.name}+{PARTIAL}"
    released = round(held_seconds * sample_rate) - trimmed.removed
    return Measurement(
        pitch=pitch,
        other_pitch=other,
        trackers=names,
        loudness=round(level.loudness(trimmed.audio, sample_rate), 3),
        true_peak=round(level.decibels(level.true_peak(audio, sample_rate)), 3),
        decay=_decay(trimmed.audio, sample_rate, released),
        release_seconds=round(_release(trimmed.audio, sample_rate, released), 3),
        release_shape_db=round(_release_shape(trimmed.audio, sample_rate, released), 3),
        rise_db=round(_rise(trimmed.audio, sample_rate, released), 3),
        lasts=all(
            _keeps_level(trimmed.audio, sample_rate, end)
            for end in {released, min(released, round(STRUCK_SECONDS * sample_rate))}
        ),
    )


def fade_seconds(held: level.Audio, let_go: level.Audio, sample_rate: int, released: int) -> float | None:
    """Measures how a note [samples] ends whose key goes up at sample `released`, beside the same note whose
    key stays down: the seconds in which an even fade by DROP_DB turns that one into it; inf where it ends as
    that one does, None where there is too little of it to tell."""
    frame = round(FADE_FRAME_SECONDS * sample_rate)
    n_frames = max(0, min(len(held), len(let_go)) - released) // frame
    powers = (
        np.square(each[released : released + n_frames * frame], dtype=np.float64).reshape(n_frames, frame)
        for each in (held, let_go)
    )
    stays, ends = (10.0 * np.log10(power.mean(axis=1) + 1e-12) for power in powers)
    heard = ends > max(ends.max(initial=-np.inf) - FADE_HEARD_DB, FADE_FLOOR_DB)
    if np.count_nonzero(heard) < LEAST_FADE_FRAMES:
        return None
    seconds = (np.flatnonzero(heard) + 0.5) * FADE_FRAME_SECONDS
    rate = float((stays - ends)[heard] @ seconds / (seconds @ seconds))
    return DROP_DB / rate if rate > 0.0 else math.inf


def is_sustained(notes: Sequence[Measurement]) -> bool:
    """Tells whether most notes of an instrument last."""
    return 2 * sum(note.lasts for note in notes) > len(notes)


def _keeps_level(audio: level.Audio, sample_rate: int, released: int) -> bool:
    """Tells whether a note keeps its level until a place in its hold; False of a short one."""
    late, rise = _decay(audio, sample_rate, released), _rise(audio, sample_rate, released)
    if late is None or late > SUSTAINED_DB_PER_SECOND:
        return False
    since_attack = (1.0 - LATE_SHARE / 2.0) * released / sample_rate - fmean(TAP_SECONDS)
    # Of a note without a rise nothing is known but its decay: it has died before its key went up, say.
    whole = -rise / since_attack if rise else late
    return min(late, whole) <= STRUCK_DB_PER_SECOND


def _decay(audio: level.Audio, sample_rate: int, released: int) -> float | None:
    """Measures the dB lost a second between the second and the last quarter of the hold."""
    quarter = released // 4
    if quarter < 0.1 * sample_rate or released > len(audio) + quarter:
        # Too short to tell, or dead long before the release, which is decay enough.
        return None if quarter < 0.1 * sample_rate else DROP_DB
    early, late = audio[quarter : 2 * quarter], audio[3 * quarter : released]
    return round((level.rms_db(early) - level.rms_db(late)) * sample_rate / (2 * quarter), 3)


def _release(audio: level.Audio, sample_rate: int, released: int) -> float:
    """Measures the seconds of the even fade by DROP_DB that is most like what follows the release."""
    before = min(max(0, released), round(FADE_FRAME_SECONDS * sample_rate))
    if not before or released >= len(audio):
        return 0.0
    power = level.power_envelope(audio[released - before :], sample_rate)
    fall = 10.0 * np.log10(max(power[:before].mean(), 1e-12) / np.maximum(power[before:], 1e-12))
    n_heard = int(np.argmax(fall > FADE_HEARD_DB)) or len(fall)
    seconds = np.arange(1, n_heard + 1) / sample_rate
    rate = float(fall[:n_heard] @ seconds / (seconds @ seconds))
    return DROP_DB / rate if rate > 0.0 else float(seconds[-1])


def _release_shape(audio: level.Audio, sample_rate: int, released: int) -> float:
    """Measures the root mean square of what an even fade of the held sound leaves unexplained, in dB."""
    hop = BAND_FRAME // 2
    held = _bands(audio[max(0, released - 3 * hop) : max(0, released)], sample_rate)
    after = _bands(audio[max(0, released) :], sample_rate)
    if not len(held) or not len(after):
        return 0.0
    before = 10.0 * np.log10(held.mean(axis=0))
    fall = 10.0 * np.log10(held.mean(axis=0).sum() / after.sum(axis=1))
    heard = fall < HEARD_DB
    loud = before > before.max() - HEARD_DB
    seconds = (np.arange(len(after)) + 1.0)[heard] * hop / sample_rate
    if not heard.any():
        return 0.0
    rate = float(fall[heard] @ seconds / (seconds @ seconds))
    left = 10.0 * np.log10(after[heard][:, loud]) - before[loud] + rate * seconds[:, None]
    return float(np.sqrt(np.mean(np.square(left))))


def _rise(audio: level.Audio, sample_rate: int, released: int) -> float:
    """Measures the dB that the last quarter of the hold lies above the time of a quick key's release."""
    begin, end = (round((level.LEAD_IN_SECONDS + seconds) * sample_rate) for seconds in TAP_SECONDS)
    late = audio[released - int(LATE_SHARE * released) : released]
    return level.rms_db(late) - level.rms_db(audio[begin:end]) if end < released <= len(audio) else 0.0


def _bands(audio: level.Audio, sample_rate: int) -> npt.NDArray[np.float64]:
    """Measures the power of thirds of octaves in windows that overlap by half: [windows, bands]."""
    if len(audio) < BAND_FRAME:
        return np.zeros((0, N_BANDS))
    windows = np.lib.stride_tricks.sliding_window_view(audio, BAND_FRAME)[:: BAND_FRAME // 2]
    power = np.square(np.abs(np.fft.rfft(windows * np.hanning(BAND_FRAME))))
    edges = LOWEST_BAND_HZ * 2.0 ** (np.arange(N_BANDS + 1) / 3.0) * BAND_FRAME / sample_rate
    places = np.minimum(np.ceil(edges).astype(int), power.shape[1])
    sums = np.pad(np.cumsum(power, axis=1), ((0, 0), (1, 0)))
    return np.asarray(np.maximum(sums[:, places[1:]] - sums[:, places[:-1]], 1e-12))


def _rounded(pitch: float | None) -> float | None:
    return None if pitch is None else round(pitch, 4)


class MeasurementLog:
    """Measurements by the notes' keys, on disk: one line of JSON a note, appended as it is measured.

    Safe to use from several threads of one process.

    A line that a kill cut short, and one by another version or by other trackers, counts as none.
    """

    def __init__(self, path: Path, trackers: str) -> None:
        """The file at `path` need not exist; `trackers` names those that listen."""
        self._path = path
        self._identity: dict[str, Any] = {"version": MEASURE_VERSION, "trackers": trackers}
        self._lock = threading.Lock()
        content = path.read_bytes() if path.exists() else b""
        self._known = dict(self._read(content.splitlines()))
        self._torn = not content.endswith(b"\n") and content != b""
        """Whether the last line has no end."""

    def get(self, key: str) -> Measurement | None:
        """Gives what was measured of this note; None where nothing was."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, measurement: Measurement) -> None:
        """Appends a measurement; raises OSError where it cannot be written."""
        line = json.dumps({"key": key, **self._identity, "measurement": vars(measurement)}) + "\n"
        with self._lock, self._path.open("ab") as file:
            file.write((("\n" if self._torn else "") + line).encode())
            file.flush()
            self._torn = False
            self._known[key] = measurement

    def _read(self, lines: Iterable[bytes]) -> Iterator[tuple[str, Measurement]]:
        for line in lines:
            try:
                found = parse_json(line)
                if {name: found[name] for name in self._identity} == self._identity:
                    yield str(found["key"]), _checked(Measurement(**found["measurement"]))
            except (ValueError, KeyError, TypeError, OverflowError):
                continue


def _checked(measurement: Measurement) -> Measurement:
    """The same; raises ValueError or TypeError where a figure of it is none."""
    for each in fields(Measurement):
        value, kind = getattr(measurement, each.name), str(each.type)
        if kind == "str" or (value is None and kind.endswith("None")):
            continue
        if isinstance(value, bool) != (kind == "bool") or not math.isfinite(value):
            raise ValueError(each.name)
    return measurement
