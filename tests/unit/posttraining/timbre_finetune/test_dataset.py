"""The samples: of which cells, at which points, with which seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.bundles import published_map
from timbrel_posttraining.evaluate.evaluation import merge
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.sections.map import Locate
from timbrel_posttraining.evaluate.sections.whole_bundle import Variety
from timbrel_posttraining.timbre_finetune.dataset import NO_INSTRUMENT, SamplePlan, dataset_key
from timbrel_training.errors import ConfigError, TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.train import load_encoder


def test_samples_are_shared_evenly_and_lie_at_published_points(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    samples = SamplePlan(bundle, library, config).draw()
    points = bundle.timbre_map.points
    own = [each for each in samples if each.take.kind is Kind.GENERATED and each.instrument != NO_INSTRUMENT]
    for named in (own, [each for each in samples if each.take.kind is Kind.SOURCE]):
        assert len(set(Counter(each.instrument for each in named).values())) == 1
        for each in named:
            assert each.target == (points[each.instrument].x, points[each.instrument].y)
    assert all(each.take.timbre == each.target for each in own)
    for each in samples:
        if each.take.kind is Kind.SOURCE:
            assert library.name(each.take.row) == points[each.instrument].instrument
    assert any(each.start > 0 and each.share < 1 for each in samples)
    assert any(each.start == 0 and each.share == 1 for each in samples)


def test_notes_between_instruments_keep_off_all_of_them(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    chart = published_map(bundle)
    samples = SamplePlan(bundle, library, config).draw()
    between = [each for each in samples if each.instrument == NO_INSTRUMENT]
    assert len(between) == config.between_notes
    for each in between:
        assert each.target == each.take.timbre and np.hypot(*each.target) <= 1
        away = np.linalg.norm(chart.centroids - each.target, axis=1).min()
        assert away >= config.between_distance * chart.spacing
    with pytest.raises(TrainingError, match="no room"):
        SamplePlan(bundle, library, replace(config, between_distance=5.0)).draw()


def test_held_out_cells_and_instruments_are_never_trained_on(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    held_out = library.split == int(Split.HELD_OUT_CELL)
    cells = {(library.name(row), int(library.pitch[row])) for row in np.flatnonzero(held_out)}
    assert cells
    drawn = SamplePlan(bundle, library, replace(config, source_notes=500, own_notes=500)).draw()
    names = [point.instrument for point in bundle.timbre_map.points]
    named = [each for each in drawn if each.instrument != NO_INSTRUMENT]
    assert not cells & {(names[each.instrument], each.take.pitch) for each in named}
    rows = [each.take.row for each in drawn if each.take.kind is Kind.SOURCE]
    assert (library.split[rows] == int(Split.TRAIN)).all() and len(set(rows)) == len(rows)


def test_references_are_fitted_to_recordings_of_held_out_cells(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    plan = SamplePlan(bundle, library, config)
    judged = plan.draw_judged()
    rows = [each.take.row for each in judged]
    assert judged and len(set(rows)) == len(rows)
    assert (library.split[rows] == int(Split.HELD_OUT_CELL)).all()
    names = [point.instrument for point in bundle.timbre_map.points]
    assert [names[each.instrument] for each in judged] == [library.name(row) for row in rows]
    assert all(each.flaws is not None for each in judged)
    assert plan.draw() == SamplePlan(bundle, library, config).draw()  # no matter what else was drawn


def test_no_seed_is_one_of_evaluations(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    samples = SamplePlan(bundle, library, config).draw()
    written = [each.take for each in samples if each.take.kind is Kind.GENERATED]
    seeds = {take.seed for take in written}
    assert len(seeds) == len(written)
    notes = EvaluationSet(bundle, library, 200)
    judged = merge([Locate(notes), Variety(notes)])
    assert not seeds & {take.seed for take in judged}
    for take in written:  # nor where evaluation asks for the very same note
        same = [
            Take(take.kind, take.pitch, take.velocity, take.seconds, timbre=take.timbre, draw=draw)
            for draw in range(100)
        ]
        assert take.seed not in {other.seed for other in same}


def test_samples_are_the_same_in_every_run_and_have_a_name(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig, timbre_dir: Path
) -> None:
    encoder = load_encoder(timbre_dir)

    def draw(config: TimbreFinetuneConfig) -> tuple[str, list[object]]:
        plan = SamplePlan(bundle, library, config)
        return dataset_key(bundle, plan, config, encoder), list(plan.draw())

    assert draw(config) == draw(config)
    slower = replace(config, pull_weight=9.0)
    assert draw(slower) == draw(config)
    seeded = replace(config, loop=replace(config.loop, seed=1))
    for other in (replace(config, own_notes=12), seeded):
        key, samples = draw(other)
        assert key != draw(config)[0] and samples != draw(config)[1]
    other_ear = TimbreEncoder(replace(encoder.config, n_bands=32), encoder.sample_rate, len(encoder.places))
    assert dataset_key(bundle, SamplePlan(bundle, library, config), config, other_ear) != draw(config)[0]


def test_a_library_without_an_instrument_of_the_map_is_refused(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    library.instruments[0] = "Kazoo"
    with pytest.raises(TrainingError, match="no training notes of Grand Piano"):
        SamplePlan(bundle, library, config)


def test_other_libraries_give_notes_of_the_instruments_that_the_map_names(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    config = replace(config, other_notes=40)
    first, second = (point.instrument for point in bundle.timbre_map.points[:2])
    other = NoteDataset(library.path)
    other.instruments = [
        {first: f"  {first.upper()}", second: second}.get(name, "Kazoo") for name in library.instruments
    ]
    plan = SamplePlan(bundle, library, config, [other, other])
    samples = plan.draw()
    assert samples[:-40] == SamplePlan(bundle, library, config).draw()  # the others come on top of these
    drawn = samples[-40:]
    assert Counter((each.instrument, each.library) for each in drawn) == {
        (number, of): 10 for number in (0, 1) for of in (1, 2)
    }
    for each in drawn:
        assert library.name(each.take.row) == (first, second)[each.instrument]
        assert library.split[each.take.row] == Split.TRAIN
    told = [(each["name"], each["n_instruments"]) for each in plan.sources_elsewhere()]
    assert told == [(name, 2) for _ in range(2) for name in library.sources]
    judged = plan.draw_judged()
    assert {each.library for each in judged} == {0, 1, 2} and all(each.flaws is not None for each in judged)
    assert (library.split[[each.take.row for each in judged]] == Split.HELD_OUT_CELL).all()
    other.instruments = ["Kazoo"] * len(library.instruments)
    with pytest.raises(TrainingError, match="no training notes of any instrument on the map"):
        SamplePlan(bundle, library, config, [other])


def test_small_libraries_are_heard_more_than_once_and_do_not_drown_large_ones(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    """A library of a ninth as many notes has a quarter of the samples."""
    large, small = NoteDataset(library.path), NoteDataset(library.path)
    first = bundle.timbre_map.points[0].instrument
    rows = np.flatnonzero((library.instrument == library.instruments.index(first)) & (library.split == 0))
    large.split[:], small.split[:] = Split.HELD_OUT_INSTRUMENT, Split.HELD_OUT_INSTRUMENT
    large.split[rows[:9]], small.split[rows[:1]] = Split.TRAIN, Split.TRAIN
    samples = SamplePlan(bundle, library, replace(config, other_notes=40), [large, small]).draw()
    assert Counter(each.library for each in samples[-40:]) == {1: 30, 2: 10}


def test_cells_that_are_held_out_are_so_of_other_libraries_too(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    """Whatever these call their instruments, by whose names cells are held out, and hold out themselves."""
    other = NoteDataset(library.path)
    other.instruments = [name.lower() for name in library.instruments]
    other.split[:] = Split.TRAIN
    plan = SamplePlan(bundle, library, replace(config, other_notes=500), [other])
    drawn = [each.take.row for each in plan.draw() if each.library == 1]
    assert len(drawn) == 500 and (library.split[drawn] == Split.TRAIN).all()
    n_trained = len(library.of_split(Split.TRAIN))
    assert [each["n_notes"] for each in plan.sources_elsewhere()] == [n_trained] * len(library.sources)


def test_a_soundfonts_notes_are_of_its_own_variant_where_the_map_has_one(
    bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig
) -> None:
    point = bundle.timbre_map.points[0]
    variant = f"{bundle.timbre_map.points[1].instrument} of My Font"
    library.instruments[library.instruments.index(point.instrument)] = variant
    point.instrument = variant
    other = NoteDataset(library.path)
    other.instruments = [variant.partition(" of ")[0]] * len(library.instruments)
    for source, expected in (("soundfont My_Font.sf2", 0), ("soundfont Another.sf2", 1)):
        other.sources = [source] * len(library.sources)
        samples = SamplePlan(bundle, library, replace(config, other_notes=5), [other]).draw()[-5:]
        assert {each.instrument for each in samples} == {expected}


@pytest.mark.parametrize(
    "field", [{"cut_share": 1.5}, {"source_share": 0.9, "between_share": 0.1}, {"pull_weight": -1.0}]
)
def test_a_config_that_cannot_be_is_refused(field: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(field))):
        TimbreFinetuneConfig(**field)  # type: ignore[arg-type]
