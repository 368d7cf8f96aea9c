from __future__ import annotations

from dataclasses import replace

import pytest
from performance_scores import score_note, score_of

from timbrel.core.model import Model
from timbrel.performance.instrumentation import Part
from timbrel.performance.perform import Plan, folded_pitch, plan_piece
from timbrel.performance.score import ScoreNote

PARTS = (Part(1, 0, "Violin", (0.5, 0.5), "asked"),)


def plan(model: Model, *notes: ScoreNote, takes: int = 1, fold: bool = False) -> Plan:
    return plan_piece(score_of(*notes), PARTS, model, seed=7, takes=takes, fold=fold)


def test_equal_notes_are_one_request_with_all_their_places(model: Model) -> None:
    made = plan(model, score_note(60), score_note(60, start=1.0), score_note(62, start=2.0))
    assert [(request.pitch, len(places)) for request, places in made.entries.items()] == [(60, 2), (62, 1)]
    assert made.n_notes == 3
    assert {request.seed for request in made.entries} == {7}
    assert {request.timbre for request in made.entries} == {(0.5, 0.5)}


def test_holds_that_are_equal_in_frames_are_equal(model: Model) -> None:
    frame = 1.0 / model.frame_rate
    made = plan(model, score_note(held=20 * frame), score_note(held=20.4 * frame))
    assert len(made.entries) == 1
    assert len(plan(model, score_note(held=20 * frame), score_note(held=21 * frame)).entries) == 2


def test_other_velocities_are_other_requests(model: Model) -> None:
    made = plan(model, score_note(velocity=1), score_note(velocity=127))
    assert [request.velocity for request in made.entries] == [1, 127]


def test_takes_are_used_in_turn(model: Model) -> None:
    made = plan(model, *(score_note(start=float(index)) for index in range(5)), takes=2)
    assert [
        (request.seed, [place.start for place in places]) for request, places in made.entries.items()
    ] == [
        (7, [0.0, 2.0, 4.0]),
        (8, [1.0, 3.0]),
    ]


def test_holds_are_brought_into_the_bundles_range(model: Model) -> None:
    shortest, longest = model.seconds_range
    made = plan(model, score_note(held=0.0), score_note(held=1000.0))
    assert [request.seconds for request in made.entries] == [shortest, longest]
    assert made.n_long == 1


def test_notes_beyond_the_range_are_left_out_and_counted_or_folded(model: Model) -> None:
    model = replace(model, bends=False)
    lowest, highest = model.pitch_range
    notes = (score_note(lowest - 1), score_note(60), score_note(highest + 13))
    left_out = plan(model, *notes)
    assert [request.pitch for request in left_out.entries] == [60]
    assert left_out.n_out_of_range == 2
    folded = plan(model, *notes, fold=True)
    assert [request.pitch for request in folded.entries] == [lowest + 11, 60, highest - 11]


def test_notes_beyond_the_range_are_bent_from_its_nearest_pitch(model: Model) -> None:
    lowest, highest = model.pitch_range
    swoop = ((0.0, 0.0), (0.5, -200.0))
    notes = (
        *(score_note(lowest - 5, cents=12.0), score_note(highest + 3), score_note(lowest - 23, cents=swoop)),
        *(score_note(lowest - 25), score_note(60)),
    )
    made = plan(model, *notes)
    asked = [(request.pitch, request.cents) for request in made.entries]
    assert asked == [(lowest, -488.0), (highest, 300.0), (lowest, 0.0), (60, 0.0)]
    (swooping,) = list(made.entries.values())[2]
    assert swooping.cents == ((0.0, -2300.0), (0.5, -2400.0))
    assert (made.n_stretched, made.n_out_of_range, made.n_unbent) == (3, 1, 0)
    folded = plan(model, *notes, fold=True)
    assert (folded.n_stretched, folded.n_out_of_range) == (0, 4)


def test_folding_finds_the_nearest_octave_or_none() -> None:
    assert [folded_pitch(pitch, 36, 96) for pitch in (0, 24, 35, 60, 97, 127)] == [36, 36, 47, 60, 85, 91]
    assert folded_pitch(30, 60, 64) is None


def test_a_channel_without_a_part_is_left_out(model: Model) -> None:
    made = plan(model, score_note(), replace(score_note(), channel=10, is_drum=True), score_note(program=127))
    assert (made.n_notes, made.n_drums, made.effects) == (1, 1, {(1, 127): 1})


@pytest.mark.parametrize("pitch", [36, 96])
def test_the_ranges_ends_are_played(model: Model, pitch: int) -> None:
    assert plan(model, score_note(pitch)).n_out_of_range == 0
