"""Every parser of bytes from elsewhere, given what hypothesis has spoilt: it takes or refuses it in a line.

What was found that way lies in tests/data/fuzz, a folder for each parser, and is tried in every run. Who
finds more writes the bytes there.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fuzz_targets import TARGETS, clean, spoilt
from hypothesis import HealthCheck, Phase, given, seed, settings
from requirements_gate import require_module

CORPUS = Path(__file__).resolve().parents[1] / "data" / "fuzz"
FOUND = sorted(path.relative_to(CORPUS) for path in CORPUS.rglob("*") if path.is_file())


MINUTE = 60.0


@pytest.fixture(autouse=True)
def mido() -> None:
    require_module("mido", "midi")


@pytest.mark.parametrize("found", FOUND, ids=str)
def test_what_was_found_stays_mended(found: Path, tmp_path: Path) -> None:
    TARGETS[found.parts[0]].try_((CORPUS / found).read_bytes(), tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_spoilt_is_valid_before(name: str, tmp_path: Path) -> None:
    """But for instrument files, whose samples are not there."""
    target = TARGETS[name]
    for data in target.valid(tmp_path):
        assert target.try_(data, clean(tmp_path / "own")) or name in ("sfz", "dspreset")


def attack(name: str, folder: Path, n_examples: int, number: int) -> None:
    """Tries so many spoilt inputs; others for each number."""
    target = TARGETS[name]
    own = folder / "own"

    @seed(number)
    @settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=spoilt(target.valid(clean(folder / "valid"))))
    def try_one(data: bytes) -> None:
        target.try_(data, own)

    clean(own)
    try_one()


@pytest.mark.parametrize("name", TARGETS)
def test_some_spoilt_inputs_are_taken_or_refused(name: str, tmp_path: Path) -> None:
    attack(name, tmp_path, n_examples=40, number=0)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute_of_spoilt_inputs_is_taken_or_refused(name: str, tmp_path: Path) -> None:
    end, n_rounds = time.monotonic() + MINUTE, 0
    while time.monotonic() < end:
        n_rounds += 1
        attack(name, tmp_path, n_examples=200, number=n_rounds)
    print(f"{name}: {200 * n_rounds} inputs")
