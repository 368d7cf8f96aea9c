"""Checks of the CUDA path on a stand-in for CUDA's libraries: for `make cuda-check`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cuda_check.stand_in import StandIn

from timbrel_bundle.runtime import CUDA, obstacle


@pytest.fixture(scope="session")
def stand_in() -> StandIn:
    """The stand-in's counters. Every test skips where this process has not loaded it."""
    if "STAND_IN_DEVICES" not in os.environ:
        pytest.skip("needs the stand-in for CUDA's libraries: make cuda-check")
    assert (fault := obstacle(CUDA)) is None, fault
    return StandIn()


@pytest.fixture(autouse=True)
def no_violations(stand_in: StandIn) -> object:
    """Nothing that any of these tests does may break a rule of graph capture."""
    before = stand_in.totals["violations"]
    yield
    assert stand_in.totals["violations"] == before


@pytest.fixture(params=["fp16", "fp32"])
def precision(request: pytest.FixtureRequest) -> str:
    """Both decode graphs that CUDA has: half and portable."""
    return str(request.param)


@pytest.fixture
def shipped() -> Path:
    """Folder of the bundle that ships."""
    from timbrel_server.config import default_bundle_path

    return default_bundle_path()
