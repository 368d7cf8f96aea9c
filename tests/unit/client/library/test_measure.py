"""Measurements on disk: kept over a kill, and not taken for those of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from timbrel.library.render import measure
from timbrel.library.render.measure import Measurement, MeasurementLog

TRACKERS = "yin+harmonic-sum"
MEASURED = Measurement(60.01, None, "yin", -20.5, -3.25, None, 0.125)


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
