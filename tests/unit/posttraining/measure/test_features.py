"""All measurements of one note together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from timbrel_posttraining.evaluate.measure.features import measure_note
from timbrel_posttraining.evaluate.measure.level import level_db
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_training.notes.spectrum import log_mel

RATE = 48_000


@pytest.fixture(scope="module")
def meter() -> TuningMeter:
    return TuningMeter()


def test_a_note_is_measured_in_full(meter, tone) -> None:
    audio = np.concatenate([tone(64, 0.8), np.zeros(RATE // 2, np.float32)])
    features = measure_note(audio, RATE, 64, 0.6, meter)
    assert features.seconds == pytest.approx(1.3)
    assert features.tuning.within_15
    assert features.release_seconds == pytest.approx(0.2, abs=0.015)
    assert features.level_db == pytest.approx(level_db(audio, RATE), abs=0.1)
    assert features.harmonic_to_noise_db is not None and features.harmonic_to_noise_db > 25
    assert features.log_mel.dtype == np.float16
    assert np.abs(features.log_mel - log_mel(audio, RATE)).max() < 0.1
    assert features.mfcc.shape == (12,) and features.statistics.shape == (40,)


def test_noise_around_an_out_of_tune_note_is_judged_at_its_own_pitch(meter, tone) -> None:
    features = measure_note(tone(67), RATE, 60, 0.5, meter)
    assert not features.tuning.in_tune
    assert features.harmonic_to_noise_db is not None and features.harmonic_to_noise_db > 25


def test_measurements_are_json(meter, tone) -> None:
    features = measure_note(tone(72), RATE, 72, 0.5, meter)
    values = json.loads(json.dumps(features.to_json(), allow_nan=False))
    assert values["tuning"]["in_tune"] is True
    assert values["pitch"] == 72 and len(values["mfcc"]) == 12
    assert "log_mel" not in values


@pytest.mark.parametrize("n_samples", [0, 1, 480, 3000, RATE])
def test_silence_of_any_length_can_be_measured(meter, n_samples) -> None:
    features = measure_note(np.zeros(n_samples, np.float32), RATE, 60, 0.3, meter)
    assert not features.tuning.in_tune
    assert features.attack_seconds is None and features.brightness is None
    json.dumps(features.to_json(), allow_nan=False)


@pytest.mark.parametrize("n_samples", [1, 480, 3000])
def test_a_click_can_be_measured(meter, n_samples) -> None:
    features = measure_note(np.full(n_samples, 0.5, np.float32), RATE, 60, 0.3, meter)
    json.dumps(features.to_json(), allow_nan=False)
    assert features.log_mel.shape[1] == 80
