"""Measurements on disk: kept over a kill, and not taken for those of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from timbrel.library.finish.finisher import has_release
from timbrel.library.render import measure
from timbrel.library.render.level import Audio, Trimmed
from timbrel.library.render.measure import Measurement, MeasurementLog
from timbrel.library.render.pitch import find_trackers

TRACKERS = "yin+harmonic-sum"
MEASURED = Measurement(60.01, None, "yin", -20.5, -3.25, None, 0.125, 1.5, 0.0, lasts=True)


def test_what_was_measured_is_known_to_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "measured.log"
    first = MeasurementLog(path, TRACKERS)
    assert first.get("a") is None
    first.put("a", MEASURED)
    first.put("b", replace(MEASURED, pitch=None, decay=3.5))
    again = MeasurementLog(path, TRACKERS)
    assert again.get("a") == first.get("a") == MEASURED
    assert again.get("b") == replace(MEASURED, pitch=None, decay=3.5)


def test_a_line_that_a_kill_cut_short_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "measured.log"
    log = MeasurementLog(path, TRACKERS)
    log.put("a", MEASURED)
    log.put("b", MEASURED)
    path.write_bytes(path.read_bytes()[:-20])
    again = MeasurementLog(path, TRACKERS)
    assert again.get("a") == MEASURED and again.get("b") is None
    again.put("c", MEASURED)
    last = MeasurementLog(path, TRACKERS)
    assert [last.get(key) for key in "abc"] == [MEASURED, None, MEASURED]


def test_others_measurements_count_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "measured.log"
    MeasurementLog(path, TRACKERS).put("a", MEASURED)
    assert MeasurementLog(path, "yin+swift-f0").get("a") is None
    monkeypatch.setattr(measure, "MEASURE_VERSION", measure.MEASURE_VERSION + 1)
    assert MeasurementLog(path, TRACKERS).get("a") is None


def test_noise_in_the_file_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "measured.log"
    path.write_bytes(b"\xff\xfe\n[]\n{}\nnull\n")
    log = MeasurementLog(path, TRACKERS)
    log.put("a", MEASURED)
    assert MeasurementLog(path, TRACKERS).get("a") == MEASURED


def test_a_release_that_fades_evenly_is_told_from_one_that_does_not(tone: Callable[..., Audio]) -> None:
    """An even fade; and one through which the high partials go at once, as a room or a body lets them."""
    held, after = 48_000, 48_000
    fade = 10.0 ** (-40.0 * np.arange(after) / 48_000 / 20.0)
    even = tone(60, 2.0)
    even[held:] *= fade.astype(np.float32)
    dull = even.copy()
    dull[held:] = tone(60, 2.0, harmonics=(1.0,))[held:] * fade
    shapes = [measure._release_shape(audio, 48_000, held) for audio in (even, dull)]
    assert shapes[0] < 1.0 and shapes[1] > 6.0
    assert measure._release_shape(even[:held], 48_000, held) == 0.0


def test_what_rises_slowly_has_no_release_samples(tone: Callable[..., Audio]) -> None:
    """The release of a held pad, behind a key that came up at once, would be louder than the note was."""
    held, after = 48_000, 48_000
    sound = tone(60, 2.0)
    sound[held:] = tone(60, 2.0, harmonics=(1.0,))[held:] * 10.0 ** (-40.0 * np.arange(after) / after / 20.0)
    slow = sound.copy()
    slow[:held] *= np.minimum(np.arange(held) / 36_000, 1.0).astype(np.float32)
    trackers = find_trackers()
    struck, swelling = (
        measure.measure(audio, Trimmed(audio, 0), 48_000, 60, 1.0, trackers) for audio in (sound, slow)
    )
    assert has_release([struck]) and not has_release([swelling])
    assert swelling.rise_db > 12.0 > 1.0 > abs(struck.rise_db)
