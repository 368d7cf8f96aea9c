"""A real engine under many ragged requests: each gets what it would have got alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ragged_notes import Player, alone, check_crowd, frame_rate, start_engine, start_pool

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import written_ranges
from timbrel_bundle.request_fields import SamplingSettings
from timbrel_server.config import default_bundle_path
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import NoteRequest

LIVELY = SamplingSettings(temperature=1.0, top_k=256, top_p=1.0)


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="module")
def solo(bundle: Bundle) -> Iterator[EnginePool]:
    """An engine that writes one note after another."""
    engine = start_engine(bundle, n_slots=1)
    yield engine
    engine.stop()


@pytest.mark.parametrize("n_requests", [120, pytest.param(1000, marks=pytest.mark.acceptance)])
def test_ragged_requests_are_each_as_alone(bundle: Bundle, solo: EnginePool, n_requests: int) -> None:
    crowd = start_engine(bundle, n_slots=8)
    check_crowd(bundle, crowd, solo, n_requests)
    crowd.stop()


def test_so_they_are_behind_a_pool_of_engines(bundle: Bundle, solo: EnginePool) -> None:
    crowd = start_pool(bundle, n_slots=3, n_engines=3)
    check_crowd(bundle, crowd, solo, 60)
    crowd.stop()


@pytest.mark.acceptance
def test_ragged_requests_to_the_default_bundle_are_each_as_alone() -> None:
    bundle = Bundle.open(default_bundle_path())
    crowd, alone_engine = start_engine(bundle, n_slots=16), start_engine(bundle, n_slots=1)
    check_crowd(bundle, crowd, alone_engine, 60)
    crowd.stop()
    alone_engine.stop()


@pytest.mark.parametrize("n_frames", [0, 1, 2, 7, 30, 60])
def test_a_note_that_is_released_is_the_note_of_that_hold(
    bundle: Bundle, solo: EnginePool, n_frames: int
) -> None:
    """Held for as long as the bundle allows, unless released: the same codes as one asked for so."""
    longest = int(written_ranges(bundle.manifest).seconds_max * frame_rate(bundle))
    for seed in range(5):
        wanted = NoteRequest((0.3, -0.2), 50 + seed, 90, longest, seed, LIVELY)
        player = Player(solo, wanted, releases_after=n_frames)
        player.play()
        assert player.gone.wait(60)
        assert player.handle is not None and player.last is not None
        held = player.handle.held_frames
        assert max(n_frames, 1) <= held <= longest
        assert (player.frames, player.last.finish) == alone(solo, wanted, held)
        solo.release(player.handle)  # after the end: of no consequence
        assert player.handle.held_frames == held
