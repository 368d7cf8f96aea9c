"""The features of one note: its level over time, the colour of its spectrum, its tuning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel.pitch import PitchMeter, frequency
from timbrel_posttraining.evaluate.measure.tuning import measure_tuning
from timbrel_training.notes import spectrum
from timbrel_training.notes.spectrum import log_mel_of_power

ENVELOPE_SECONDS = 0.016
"""The envelope is a mean over so long: a period of the lowest notes, so that it does not follow the wave."""

STEP_SECONDS = 0.001
"""The envelope has a value for each of these."""

ONSET_SHARE = 0.1
"""The note begins where its level first reaches this share of its peak: 20 dB below it."""

ATTACKED_SHARE = 0.8
"""The attack is over where the level first reaches this share: 2 dB below the peak, so that a tremolo in the
held part does not count as attack. (Two thresholds on the envelope: after Peeters 2004, "A large set of audio
features for sound description".)"""

SOUNDING_DB = 60.0
"""A note has ended where it stays this far below its peak."""

LOUDNESS_SECONDS = 0.4
"""The momentary window of ITU-R BS.1770: about as long as the ear takes to judge loudness."""

SILENCE_DB = -120.0
"""The level of silence."""

HNR_WINDOW = 2048
"""Samples, at 24 kHz, that the harmonic-to-noise ratio looks at: five periods of the lowest note judged."""

HNR_HOP = 1024
"""Samples from one such window to the next."""

HNR_FFT = 2 * HNR_WINDOW
"""Windows are zero-padded to this length, so that the autocorrelation does not wrap around."""

SEARCHED_CENTS = np.arange(-50.0, 51.0, 2.0)
"""Periods tried around the one given: a note may be a little out of tune, and vibrato moves it."""

HNR_LIMIT_DB = 40.0
"""Ratios are kept within plus and minus this: beyond, the method's own error decides."""

NOWHERE = (float("nan"), float("nan"))
"""The point of a note that the timbre encoder could not place."""


@dataclass(frozen=True)
class NoteFeatures:
    """Measurements of one note. NaN where one could not be made: the note is silent or too short."""

    seconds: float  # of sound
    truncated: bool  # cut at the bundle's cap
    in_tune: bool  # within 50 cents by either tracker
    swift_in_tune: bool  # by swift-f0 alone
    within_15: bool  # cents
    octave_error: bool  # right but for the octave
    spread_cents: float  # of the fundamental within the note
    jump_cents: float  # largest step of the fundamental between neighbouring frames
    attack_seconds: float
    release_seconds: float
    harmonic_to_noise_db: float
    level_db: float
    brightness: float  # Hz
    x: float  # where the bundle's timbre encoder puts it; NaN where there is too little to hear
    y: float


def measure_note(
    audio: NDArray[np.float32],
    sample_rate: int,
    pitch: int,
    held_seconds: float,
    meter: PitchMeter,
    *,
    point: tuple[float, float] = NOWHERE,
    truncated: bool = False,
) -> tuple[NoteFeatures, NDArray[np.float32]]:
    """Measures audio [samples], mono, at `sample_rate` Hz; the key is pressed where it starts.

    Returns the measurements, and the log-mel spectrogram [frames, 80] in dB. `pitch` is the MIDI note number
    asked, `point` where the timbre encoder puts the note; `truncated`: it was cut at the bundle's cap.
    """
    signal = spectrum.at_measuring_rate(audio, sample_rate)
    power = spectrum.power_spectrum(signal, spectrum.SAMPLE_RATE)
    mel = log_mel_of_power(power)
    envelope = Envelope.of(signal, spectrum.SAMPLE_RATE)
    tuning = measure_tuning(meter, signal, spectrum.SAMPLE_RATE, pitch)
    sounding_pitch = pitch if tuning.cents is None else pitch + tuning.cents / 100.0
    features = NoteFeatures(
        seconds=len(audio) / sample_rate,
        truncated=truncated,
        in_tune=bool(tuning.in_tune),
        swift_in_tune=bool(tuning.swift_in_tune),
        within_15=bool(tuning.within_15),
        octave_error=bool(tuning.octave_error),
        spread_cents=_number(tuning.spread_cents),
        jump_cents=_number(tuning.jump_cents),
        attack_seconds=_number(envelope.attack_seconds),
        release_seconds=envelope.release_seconds(held_seconds),
        harmonic_to_noise_db=_number(harmonic_to_noise_db(signal, spectrum.SAMPLE_RATE, sounding_pitch)),
        level_db=level_db(signal, spectrum.SAMPLE_RATE),
        brightness=_number(brightness_hz(power)),
        x=point[0],
        y=point[1],
    )
    return features, mel


@dataclass(frozen=True)
class Envelope:
    """The level of a note in steps of 1 ms."""

    level: NDArray[np.float64]
    """[steps], RMS around each moment; full scale is 1."""

    peak: float
    """The highest level; 0 of silence."""

    @classmethod
    def of(cls, audio: NDArray[np.float32], sample_rate: int) -> Envelope:
        """Follows the level of audio [samples]."""
        if not len(audio):
            return cls(np.zeros(0), 0.0)
        half = max(1, round(ENVELOPE_SECONDS * sample_rate / 2))
        energy = np.concatenate(([0.0], np.cumsum(np.square(audio, dtype=np.float64))))
        centres = np.arange(0.0, len(audio), STEP_SECONDS * sample_rate).round().astype(np.int64)
        last, first = np.minimum(centres + half, len(audio)), np.maximum(centres - half, 0)
        level = np.sqrt(np.maximum(energy[last] - energy[first], 0.0) / (2 * half))
        return cls(level, float(level.max()))

    @property
    def onset_seconds(self) -> float | None:
        """Seconds from the start of the audio to the note's onset; None of silence. Good to about 8 ms."""
        return self._first_above(ONSET_SHARE)

    @property
    def attack_seconds(self) -> float | None:
        """Seconds in which the level rises from 10 % to 80 % of its peak; None of silence.

        A linear rise over T seconds measures 0.7 T; the shortest that can be told is about 10 ms.
        """
        onset, attacked = self.onset_seconds, self._first_above(ATTACKED_SHARE)
        return None if onset is None or attacked is None else attacked - onset

    def release_seconds(self, held_seconds: float) -> float:
        """Seconds from the release of the key until the note stays 60 dB below its peak.

        0 where it had ended before; the rest of the audio where it never falls so far. The key is pressed
        where the audio starts.
        """
        sounding = self._at_least(10.0 ** (-SOUNDING_DB / 20.0))
        return max(0.0, float(sounding[-1]) * STEP_SECONDS - held_seconds) if len(sounding) else 0.0

    def _first_above(self, share: float) -> float | None:
        """Seconds from the start until the level first reaches this share of the peak; None of silence."""
        reached = self._at_least(share)
        return float(reached[0]) * STEP_SECONDS if len(reached) else None

    def _at_least(self, share: float) -> NDArray[np.intp]:
        return np.flatnonzero((self.level > 0.0) & (self.level >= share * self.peak))


def level_db(audio: NDArray[np.float32], sample_rate: int) -> float:
    """RMS in dB of the loudest 400 ms; 0 dB is RMS 1, and a sine of amplitude 1 measures -3.

    A shorter note is judged as if silence followed: of two equally strong notes the shorter is softer.
    """
    if not len(audio):
        return SILENCE_DB
    length = round(LOUDNESS_SECONDS * sample_rate)
    energy = np.concatenate(([0.0], np.cumsum(np.square(audio, dtype=np.float64))))
    loudest = float(np.max(energy[length:] - energy[:-length])) if len(audio) > length else float(energy[-1])
    return max(SILENCE_DB, float(10.0 * np.log10(max(loudest, 0.0) / length + 1e-30)))


def brightness_hz(power: NDArray[np.float32]) -> float | None:
    """The spectral centroid in Hz of power [frames, 513] (see `notes.spectrum.power_spectrum`), weighted by
    magnitude, averaged over the loud frames; None of silence."""
    magnitude = np.sqrt(power[spectrum.loud_frames(power)])
    if not len(magnitude):
        return None
    frequencies = np.fft.rfftfreq(spectrum.WINDOW, 1.0 / spectrum.SAMPLE_RATE)
    return float(np.mean(magnitude @ frequencies / magnitude.sum(axis=1)))


def harmonic_to_noise_db(audio: NDArray[np.float32], sample_rate: int, pitch: float) -> float | None:
    """Harmonic-to-noise ratio in dB, the median over loud frames; None of silence or of less than 85 ms.

    After Boersma 1993, "Accurate short-term analysis of the fundamental frequency and the harmonics-to-noise
    ratio of a sampled sound": the autocorrelation at one period, freed of the window's own, is the periodic
    share r of the power, and the ratio is r / (1 - r). The period is looked for within 50 cents of `pitch`, a
    MIDI note number, fractions allowed.
    """
    frames = spectrum.frames_of(spectrum.at_measuring_rate(audio, sample_rate), HNR_WINDOW, HNR_HOP)
    window = spectrum.hann(HNR_WINDOW)
    transform = np.fft.rfft(frames * window, HNR_FFT)
    power = np.asarray(transform.real**2 + transform.imag**2, dtype=np.float32)
    loud = power[spectrum.loud_frames(power)]
    if not len(loud):
        return None
    periods = spectrum.SAMPLE_RATE / (frequency(pitch) * 2.0 ** (SEARCHED_CENTS / 1200.0))
    of_window = np.abs(np.fft.rfft(window.astype(np.float64), HNR_FFT)) ** 2
    periodic = (_autocorrelation(loud, periods) / _autocorrelation(of_window[None], periods)).max(axis=1)
    edge = 1.0 / (1.0 + 10.0 ** (HNR_LIMIT_DB / 10.0))
    share = np.clip(periodic, edge, 1.0 - edge)
    return float(np.median(10.0 * np.log10(share / (1.0 - share))))


def _autocorrelation(power: NDArray[np.floating], lags: NDArray[np.float64]) -> NDArray[np.float64]:
    """Works out the autocorrelation [frames, lags] of power [frames, bins], as a share of the power.

    Lags are in samples and need not be whole: it is the sum of each bin's cosine.
    """
    bins = np.arange(HNR_FFT // 2 + 1)
    twice = np.where((bins == 0) | (bins == HNR_FFT // 2), 1.0, 2.0)[:, None]
    cosines = twice * np.cos(2.0 * np.pi / HNR_FFT * bins[:, None] * lags)
    return np.asarray(power @ cosines / (power @ twice), dtype=np.float64)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
