"""Choosing notes of the library, and the takes made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simple_notes import SyntheticSource

from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Kind
from timbrel_posttraining.evaluate.sections.fidelity import points_between
from timbrel_posttraining.evaluate.sections.identity import candidates_of
from timbrel_posttraining.evaluate.sections.response import choose_layers, choose_rows
from timbrel_posttraining.evaluate.sections.whole_bundle import choose_twins
from timbrel_posttraining.evaluate.takes import TakeAudio, TakeCache
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset
from timbrel_training.notes.split import Split


def test_the_same_notes_are_picked_every_time(notes: EvaluationSet) -> None:
    rows = notes.pick(Split.HELD_OUT_CELL, 5)
    assert len(rows) == 5
    assert np.array_equal(rows, notes.pick(Split.HELD_OUT_CELL, 5))
    assert (notes.library.split[rows] == Split.HELD_OUT_CELL).all()


def test_a_library_of_other_instruments_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    source = SyntheticSource(n_instruments=1, pitches=[60], n_draws=1, sample_rate=16_000, max_held=0.3)
    render_dataset(source, tmp_path / "notes", jobs=1)
    with pytest.raises(TrainingError, match="not on the bundle's map"):
        EvaluationSet(Bundle.open(tiny_bundle), NoteDataset(tmp_path / "notes"), 10)


def test_a_takes_id_and_seed_follow_from_what_is_played(notes: EvaluationSet) -> None:
    take = notes.generated(3)
    assert take == notes.generated(3) and take.seed == notes.generated(3).seed
    others = [replace(take, draw=1), replace(take, velocity=take.velocity % 127 + 1), notes.generated(4)]
    assert len({take.id, *(other.id for other in others)}) == 4
    assert 0 <= take.seed < 2**64


def test_a_note_is_asked_at_its_instruments_published_point(notes: EvaluationSet) -> None:
    take = notes.generated(0)
    point = next(p for p in notes.bundle.timbre_map.points if p.instrument == notes.name(0))
    assert take.timbre == pytest.approx((point.x, point.y))
    assert (take.pitch, take.velocity) == (notes.library.pitch[0], notes.library.velocity[0])


def test_points_between_keep_their_distance_and_fill_the_disc() -> None:
    instruments = np.array([[0.0, 0.0], [0.5, 0.5]])
    points = points_between(instruments, 0.2, 2000, np.random.default_rng(0))
    away = np.linalg.norm(points[:, None] - instruments[None], axis=2)
    radius = np.linalg.norm(points, axis=1)
    assert len(points) == 2000 and away.min() >= 0.2 and radius.max() <= 1
    assert np.mean(radius < 0.5) == pytest.approx(
        0.22, abs=0.05
    )  # (0.25 - 0.04) of (1 - 0.08) and the overlap
    with pytest.raises(TrainingError, match=r"no room for 10 notes .* 0 are the most; choose a smaller"):
        points_between(np.zeros((1, 2)), 1.0, 10, np.random.default_rng(0))


def test_a_sampler_plays_the_nearest_trained_note_at_the_pitch_asked(
    notes: EvaluationSet, cache: TakeCache
) -> None:
    library, audio = notes.library, TakeAudio(notes.bundle, notes.library, cache)
    for row in map(int, notes.rows_of(Split.HELD_OUT_CELL)):
        take, trained = notes.sampler(row), notes.rows_of(Split.TRAIN)
        assert take is not None and take.kind is Kind.SAMPLER and take.pitch == library.pitch[row]
        same = trained[(notes.voice_of[trained] == notes.voice_of[row])]
        steps = np.abs(library.pitch[same].astype(int) - take.pitch)
        away = int(library.pitch[take.row]) - take.pitch
        assert take.row in trained and abs(away) == steps.min() > 0
        sound, rate = audio.of(take)
        longer = 2.0 ** (away / 12)
        assert rate == library.sample_rate
        assert len(sound) == pytest.approx(library.length[take.row] * longer, abs=2)
        assert take.seconds == pytest.approx(library.held_seconds[take.row] * longer)


@pytest.mark.parametrize("spacing", [2, 4, 6, 12])
def test_a_sampler_with_gaps_has_two_velocities_of_every_so_many_semitones(
    notes: EvaluationSet, spacing: int
) -> None:
    library, played = notes.library, 0
    for row in map(int, notes.rows_of(Split.HELD_OUT_CELL)):
        trained = notes.rows_of(Split.TRAIN)
        same = trained[
            (notes.voice_of[trained] == notes.voice_of[row]) & (library.pitch[trained] % spacing == 0)
        ]
        away = np.abs(library.pitch[same].astype(int) - int(library.pitch[row]))
        take = notes.sampler(row, spacing)
        if take is None:
            assert not len(away) or 2 * away.min() > spacing
            continue
        played += 1
        assert take.row in same and 0 < abs(int(library.pitch[take.row]) - take.pitch) == away.min()
        louder = (library.pitch[same] == library.pitch[take.row]) & (library.velocity[same] > take.velocity)
        assert louder.sum() in (0, library.pitch[same].tolist().count(library.pitch[take.row]) // 2)
    assert played


def test_another_draw_is_another_note_of_the_cell(notes: EvaluationSet) -> None:
    library = notes.library
    for row in map(int, notes.rows_of(Split.HELD_OUT_CELL)):
        other = notes.another_draw(row)
        assert other is not None and other.row != row and other.pitch == library.pitch[row]
        assert notes.voice_of[other.row] == notes.voice_of[row]


def test_every_instrument_is_of_a_kind_of_sound(notes: EvaluationSet) -> None:
    rows = {notes.name(row): row for row in map(int, notes.rows_of(Split.TRAIN))}
    kinds = {name: notes.kind_of_sound(row) for name, row in rows.items()}
    assert kinds.pop("Grand Piano") == "struck or plucked"
    assert set(kinds.values()) == {"sustained"}


def test_candidates_are_one_note_of_every_instrument_at_that_pitch(notes: EvaluationSet) -> None:
    row = int(notes.pick(Split.TRAIN, 1)[0])
    rows = candidates_of(notes, row)
    assert sorted(notes.instrument_of[rows]) == [0, 1, 2, 3]
    assert row in rows and (notes.library.pitch[rows] == notes.library.pitch[row]).all()


def test_of_an_instrument_in_two_fonts_there_is_a_note_of_each(
    notes: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = notes.library
    second = np.arange(len(library.pitch)) % 2
    monkeypatch.setattr(library, "source", second)
    monkeypatch.setattr(library, "sources", ["one", "other"])
    notes = EvaluationSet(notes.bundle, library, notes.count)
    row = int(notes.pick(Split.TRAIN, 1)[0])
    rows = candidates_of(notes, row)
    kinds = sorted(zip(notes.instrument_of[rows], second[rows], strict=True))
    assert len(set(kinds)) == len(kinds) > 4  # of four instruments
    assert row in rows and (library.pitch[rows] == library.pitch[row]).all()


def test_releases_are_of_notes_held_for_about_as_long(notes: EvaluationSet) -> None:
    held = notes.library.held_seconds[choose_rows(notes, 0.2, 50)]
    assert len(held) and held.min() >= 0.16 and held.max() <= 0.25
    assert not len(choose_rows(notes, 3.0, 50))  # no note of this library is held that long


def test_twins_are_played_nearly_alike(notes: EvaluationSet) -> None:
    twins = np.array(choose_twins(notes, 50))
    library = notes.library
    assert len(twins) and len(np.unique(twins)) == twins.size
    assert (np.diff(notes.instrument_of[twins], axis=1) == 0).all()
    assert (np.diff(library.pitch[twins].astype(int), axis=1) == 0).all()
    assert np.abs(np.diff(library.velocity[twins].astype(int), axis=1)).max() <= 8


def test_cells_have_a_note_near_at_least_three_velocities(notes: EvaluationSet) -> None:
    cells = choose_layers(notes, 10)
    assert cells
    for cell in cells:
        assert len(cell) >= 3 and len(set(cell.values())) == len(cell)
        assert all(abs(int(notes.library.velocity[row]) - asked) <= 15 for asked, row in cell.items())
        assert len({(notes.name(row), int(notes.library.pitch[row])) for row in cell.values()}) == 1
