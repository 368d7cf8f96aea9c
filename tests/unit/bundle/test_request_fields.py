"""Every fault of a request is named with its value and what is allowed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from timbrel_bundle import request_fields
from timbrel_bundle.request_fields import SAMPLING_FIELDS, SamplingSettings, check_request
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

RANGES = pb.RequestRanges(
    pitch_min=36, pitch_max=94, velocity_min=1, velocity_max=127, seconds_min=0.1, seconds_max=4.0
)
GOOD: dict[str, Any] = {"timbre": (0.2, -0.4), "pitch": 60, "velocity": 100, "seconds": 2.0}

NAN, INF = math.nan, math.inf


def check(**changed: Any) -> list[tuple[str, str]]:
    return check_request(RANGES, **{**GOOD, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"timbre": (1.0, 0.0)},
        {"timbre": (math.cos(1), math.sin(1))},
        {"timbre": (np.float32(math.cos(2)), np.float32(math.sin(2)))},
        {"timbre": (1 + 9e-7, 0)},
        {"timbre": np.array([0.5, 0.5])},
        {"pitch": 36},
        {"pitch": np.int64(94)},
        {"velocity": 1},
        {"velocity": 127},
        {"seconds": 0.1},
        {"seconds": 4},
        {"seed": 2**64 - 1},
        {"sampling": SamplingSettings(0, 1, 1.0)},
        {"sampling": SamplingSettings(2.0, 256, 1e-6)},
        {"sampling": pb.Sampling()},
        {"sampling": pb.Sampling(temperature=0, top_k=50, top_p=0.9)},
    ],
)
def test_what_is_allowed(changed: dict[str, Any]) -> None:
    assert check(**changed) == []


@pytest.mark.parametrize(
    ("changed", "field", "value", "allowed"),
    [
        ({"timbre": None}, "timbre", "missing", "x^2 + y^2 <= 1"),
        ({"timbre": (NAN, 0.0)}, "timbre", "(nan, 0)", "x^2 + y^2 <= 1"),
        ({"timbre": (0.0, -INF)}, "timbre", "(0, -inf)", "x^2 + y^2 <= 1"),
        ({"timbre": (0.8, 0.7)}, "timbre", "(0.8, 0.7)", "x^2 + y^2 <= 1"),
        ({"timbre": (1 + 2e-6, 0.0)}, "timbre", "1.000002", "x^2 + y^2 <= 1"),
        ({"timbre": (1e300, 1e300)}, "timbre", "1e+300", "x^2 + y^2 <= 1"),
        ({"timbre": (0.1,)}, "timbre", "(0.1)", "two finite numbers"),
        ({"timbre": ("a", 0)}, "timbre", "('a', 0)", "two finite numbers"),
        ({"pitch": None}, "pitch", "missing", "36 to 94"),
        ({"pitch": 35}, "pitch", "35", "36 to 94"),
        ({"pitch": 95}, "pitch", "95", "36 to 94"),
        ({"pitch": 60.5}, "pitch", "60.5", "36 to 94"),
        ({"pitch": True}, "pitch", "True", "36 to 94"),
        ({"pitch": "C4"}, "pitch", "'C4'", "36 to 94"),
        ({"velocity": 0}, "velocity", "0", "1 to 127"),
        ({"velocity": 128}, "velocity", "128", "1 to 127"),
        ({"velocity": NAN}, "velocity", "nan", "1 to 127"),
        ({"seconds": -1.0}, "seconds", "-1", "0.1 to 4 seconds"),
        ({"seconds": 0.0}, "seconds", "0", "0.1 to 4 seconds"),
        ({"seconds": 1e9}, "seconds", "1e+09", "0.1 to 4 seconds"),
        ({"seconds": 10**400}, "seconds", "1000", "0.1 to 4 seconds"),
        ({"seconds": NAN}, "seconds", "nan", "0.1 to 4 seconds"),
        ({"seconds": INF}, "seconds", "inf", "0.1 to 4 seconds"),
        ({"seconds": None}, "seconds", "None", "0.1 to 4 seconds"),
        ({"seed": -1}, "seed", "-1", "0 to 18446744073709551615"),
        ({"seed": 2**64}, "seed", "18446744073709551616", "0 to 18446744073709551615"),
        ({"sampling": SamplingSettings(temperature=-0.1)}, "sampling.temperature", "-0.1", "0 to 2"),
        ({"sampling": SamplingSettings(temperature=2.5)}, "sampling.temperature", "2.5", "0 to 2"),
        ({"sampling": SamplingSettings(temperature=NAN)}, "sampling.temperature", "nan", "0 to 2"),
        ({"sampling": SamplingSettings(top_k=0)}, "sampling.top_k", "0", "1 to 256"),
        ({"sampling": pb.Sampling(top_k=257)}, "sampling.top_k", "257", "1 to 256"),
        ({"sampling": pb.Sampling(top_p=0)}, "sampling.top_p", "0", "above 0 and up to 1"),
        ({"sampling": pb.Sampling(top_p=1.5)}, "sampling.top_p", "1.5", "above 0 and up to 1"),
        ({"sampling": SamplingSettings(top_p=NAN)}, "sampling.top_p", "nan", "above 0 and up to 1"),
        ({"path": [(NAN, (0, 0))]}, "path", "nan s is not within", "0 to 86400 s"),
        ({"path": [(1.0, (0, 0)), (9e4, (0, 0))]}, "path", "90000 s is not within", "1 to 86400 s"),
        ({"cents": [(-1.0, 5.0)]}, "cents", "(-1, 5) lies before 0 s", "in order, from 0 s on"),
    ],
)
def test_what_is_not(changed: dict[str, Any], field: str, value: str, allowed: str) -> None:
    ((found, description),) = check(**changed)
    assert found == field
    assert value in description
    assert allowed in description
    assert "\n" not in description and len(description) < 150


def test_all_faults_are_told_at_once() -> None:
    violations = check(pitch=200, seconds=-1.0, sampling=SamplingSettings(top_k=0, top_p=2.0))
    assert [field for field, _ in violations] == ["pitch", "seconds", "sampling.top_k", "sampling.top_p"]
    assert violations[0][1].startswith("200 is out of range; ")
    assert violations[1][1].startswith("-1 is")


def test_a_parameter_that_came_later_counts_only_where_it_does_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = tuple(replace(each, off=256 if each.name == "top_k" else None) for each in SAMPLING_FIELDS)
    monkeypatch.setattr(request_fields, "SAMPLING_FIELDS", later)
    assert SamplingSettings(1.0, 256, 0.9).effective() == {"temperature": 1.0, "top_p": 0.9}
    assert SamplingSettings(1.0, 40, 0.9).effective() == {"temperature": 1.0, "top_k": 40, "top_p": 0.9}
