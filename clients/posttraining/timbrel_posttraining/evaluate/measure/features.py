"""All that is measured of one note."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.attack import ONSET_SHARE, attack_of
from timbrel_posttraining.evaluate.measure.brightness import centroid_of
from timbrel_posttraining.evaluate.measure.envelope import envelope_of
from timbrel_posttraining.evaluate.measure.frechet import statistics_of_log_mel
from timbrel_posttraining.evaluate.measure.harmonicity import harmonic_to_noise_db
from timbrel_posttraining.evaluate.measure.level import level_db
from timbrel_posttraining.evaluate.measure.mfcc import mfcc_of
from timbrel_posttraining.evaluate.measure.release import release_of
from timbrel_posttraining.evaluate.measure.tuning import Tuning, TuningMeter
from timbrel_training.notes.spectrum import SAMPLE_RATE, at_measuring_rate, log_mel_of_power, power_spectrum


@dataclass(frozen=True, eq=False)
class NoteFeatures:
    """Measurements of one note. None where one could not be made: the note is silent or too short."""

    pitch: int
    """Asked; MIDI note number."""

    held_seconds: float
    """Asked."""

    seconds: float
    """Of audio."""

    tuning: Tuning
    onset_seconds: float | None
    attack_seconds: float | None
    release_seconds: float
    harmonic_to_noise_db: float | None
    level_db: float
    brightness: float | None
    """Spectral centroid in Hz."""

    mfcc: NDArray[np.float32]
    """[12], coefficients 2 to 13."""

    statistics: NDArray[np.float32]
    """[40], for the Frechet distance."""

    log_mel: NDArray[np.float16]
    """[frames, 80] in dB: rounded to 0.03 dB."""

    def to_json(self) -> dict[str, object]:
        """The measurements as JSON values, without the spectrogram and its statistics; None is null."""
        numbers = {name: value for name, value in vars(self).items() if not isinstance(value, np.ndarray)}
        return {**numbers, "tuning": asdict(self.tuning), "mfcc": [float(value) for value in self.mfcc]}


def measure_note(
    audio: NDArray[np.float32],
    sample_rate: int,
    pitch: int,
    held_seconds: float,
    meter: TuningMeter,
) -> NoteFeatures:
    """Measures audio [samples], mono, at `sample_rate` Hz; the key is pressed where it starts.

    Args:
        pitch: asked, a MIDI note number.
        held_seconds: how long the key was to be held.
    """
    signal = at_measuring_rate(audio, sample_rate)
    power = power_spectrum(signal, SAMPLE_RATE)
    mel = log_mel_of_power(power)
    envelope = envelope_of(signal, SAMPLE_RATE)
    tuning = meter.measure(signal, SAMPLE_RATE, pitch)
    heard = pitch if tuning.cents is None else pitch + tuning.cents / 100.0
    return NoteFeatures(
        pitch=pitch,
        held_seconds=held_seconds,
        seconds=len(audio) / sample_rate,
        tuning=tuning,
        onset_seconds=envelope.first_above(ONSET_SHARE),
        attack_seconds=attack_of(envelope),
        release_seconds=release_of(envelope, held_seconds),
        harmonic_to_noise_db=harmonic_to_noise_db(signal, SAMPLE_RATE, heard),
        level_db=level_db(signal, SAMPLE_RATE),
        brightness=centroid_of(power),
        mfcc=mfcc_of(power),
        statistics=statistics_of_log_mel(mel),
        log_mel=mel.astype(np.float16),
    )
