"""What the sections make of measurements whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.measure import two_sample
from timbrel_posttraining.evaluate.measure.features import NoteFeatures
from timbrel_posttraining.evaluate.measure.likeness import Likeness
from timbrel_posttraining.evaluate.page import render_page
from timbrel_posttraining.evaluate.report import Figure, Report, SectionReport, Table
from timbrel_posttraining.evaluate.sections.fidelity import Between, TrainedCells
from timbrel_posttraining.evaluate.sections.gaps import Gaps
from timbrel_posttraining.evaluate.sections.identity import Identity
from timbrel_posttraining.evaluate.sections.map import Locate, MapQuality, nearest_known, ranks
from timbrel_posttraining.evaluate.sections.realism import Truth, TwoSample
from timbrel_posttraining.evaluate.sections.response import Release, Velocity, error_of_allowed
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.sections.whole_bundle import Variety
from timbrel_posttraining.evaluate.takes import CODES, FEATURES, MEL, STATISTICS, Measurements, TakeCache
from timbrel_training.errors import TrainingError, WriteError

MakeFeatures = Callable[..., NoteFeatures]
Measure = Callable[..., Measurements]


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """How well the two-sample test tells is test_two_sample.py's business."""
    monkeypatch.setattr(two_sample, "N_REPEATS", 1)


@dataclass(frozen=True)
class Values:
    """A report's values by name."""

    report: SectionReport

    def __getitem__(self, name: str) -> float:
        return self.figure(name).estimate.value

    def figure(self, name: str) -> Figure:
        return next(figure for figure in self.report.figures if figure.name == name)


def takes_of(section: Section) -> list[Take]:
    return list(dict.fromkeys(section.requested))


def flat_mel(level: float, frames: int = 100) -> NDArray[np.float32]:
    """A spectrogram that is as loud everywhere: two of them are as far apart as their levels."""
    return np.full((frames, 80), level, dtype=np.float32)


def every_other(takes: Iterable[Take]) -> set[Take]:
    return set(list(takes)[::2])


def test_cells_count_what_codec_and_model_lose(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    section = TrainedCells(notes)
    wrong = every_other(section.takes[Kind.GENERATED])
    levels = {Kind.SOURCE: -10.0, Kind.RECONSTRUCTION: -12.0, Kind.GENERATED: -15.0}
    measured = measure(
        takes_of(section),
        lambda take: make_features(
            in_tune=take not in wrong,
            octave_error=take in wrong,
            attack_seconds=0.03 if take.kind is Kind.GENERATED else 0.02,
        ),
        lambda take: flat_mel(levels[take.kind]),
    )
    report = section.judge(measured)
    values = Values(report)
    assert values["trained.in_tune.source"] == 1.0
    assert values["trained.in_tune.generated"] == pytest.approx(0.5)
    assert values["trained.octave_error.generated"] == pytest.approx(0.5)
    assert values["trained.in_tune.lost_by_codec"] == 0.0
    assert values["trained.in_tune.lost_by_model"] == pytest.approx(0.5)
    assert values["trained.log_mel.reconstruction"] == pytest.approx(2.0, abs=0.05)
    assert values["trained.log_mel.excess"] == pytest.approx(5.0 - (1.25 * 2.0 + 1.0), abs=0.1)
    assert values["trained.attack_error.generated"] == pytest.approx(10.0)
    octaves, families = report.tables
    assert sum(int(row[1] or 0) for row in octaves.rows) == len(section.rows)
    assert {row[0] for row in families.rows} == {"Keys", "Strings", "Winds", "Brass"}


def test_between_asks_far_from_every_instrument(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    section = Between(notes)
    away = [np.linalg.norm(notes.points - np.array(take.timbre), axis=1).min() for take in section.takes]
    assert len(section.takes) == notes.count and min(away) >= 2 * notes.noise
    wrong = every_other(section.takes)
    values = Values(
        section.judge(measure(section.takes, lambda take: make_features(in_tune=take not in wrong)))
    )
    assert values["between.in_tune"] == pytest.approx(0.5)


def test_identity_asks_which_instrument_is_nearest(notes: EvaluationSet, measure: Measure) -> None:
    """Every instrument has its own level. Of the generated notes the violin's sound like the flute's."""
    section = Identity(notes)
    violin, flute = notes.instruments.index("Violin"), notes.instruments.index("Flute")
    sounds_as = {
        take: int(notes.instrument_of[row])
        for kind in (Kind.RECONSTRUCTION, Kind.GENERATED)
        for row, take in zip(section.rows, section.takes[kind], strict=True)
        if take is not None
    }
    for take, instrument in list(sounds_as.items()):
        if take.kind is Kind.GENERATED and instrument == violin:
            sounds_as[take] = flute

    def mel(take: Take) -> NDArray[np.float32]:
        number = int(notes.instrument_of[take.row]) if take.kind is Kind.SOURCE else sounds_as[take]
        return flat_mel(-10.0 * number)

    report = section.judge(measure(takes_of(section), mel=mel))
    values, (table,) = Values(report), report.tables
    expected = float(np.mean(notes.instrument_of[section.rows] != violin))
    assert values["identity.reconstruction"] == 1.0
    assert values["identity.generated"] == pytest.approx(expected)
    assert values["identity.ratio"] == pytest.approx(expected)
    recognised = {row[0]: row[2:] for row in table.rows}
    assert recognised["Violin"] == (0.0, "Flute") and recognised["Flute"] == (100.0, None)


def test_identity_is_not_won_by_being_loud(notes: EvaluationSet, measure: Measure) -> None:
    """The flute sounds in one band alone, 70 dB louder than any other instrument. Beside its peak nothing of
    them counts; beside the judged note's own all does, and each is found, though it is 1 dB off."""
    section = Identity(notes)
    flute = notes.instruments.index("Flute")
    played = {
        take: int(notes.instrument_of[row])
        for takes in section.takes.values()
        for row, take in zip(section.rows, takes, strict=True)
        if take is not None
    }

    def mel(take: Take) -> NDArray[np.float32]:
        number = played[take] if take in played else int(notes.instrument_of[take.row])
        sound = flat_mel(-70.0 - 3.0 * number)
        if number == flute:
            sound = np.full_like(sound, -120.0)
            sound[:, 0] = 0.0
        return sound + np.float32(take.kind is not Kind.SOURCE)

    values = Values(section.judge(measure(takes_of(section), mel=mel)))
    for kind in ("source", "reconstruction", "generated"):
        assert values[f"identity.{kind}"] == 1.0


def test_velocity_tells_a_wrong_level_and_a_slope_of_brightness(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """The bundle plays soft notes 6 dB too loud, and gets duller where the source gets brighter; the codec's
    slope is half the source's."""
    section = Velocity(notes)
    soft = {cell[20] for cell in section.takes[Kind.GENERATED] if 20 in cell}

    def features(take: Take) -> NoteFeatures:
        slope = {Kind.GENERATED: -1.0, Kind.RECONSTRUCTION: 0.5}.get(take.kind, 1.0)
        return make_features(
            level_db=-14.0 if take in soft else -20.0,
            brightness=1000.0 * 2.0 ** (slope * take.velocity / 127),
        )

    values = Values(section.judge(measure(takes_of(section), features)))
    assert soft
    assert values["velocity.level_error"] == pytest.approx(6.0)
    assert values.figure("velocity.level_error").met is False
    assert values["velocity.level_bias.20.generated"] == pytest.approx(6.0)
    assert values["velocity.level_error.80.generated"] == pytest.approx(0.0)
    assert values["velocity.brightness.generated"] == pytest.approx(-1.0)
    assert values["velocity.brightness.reconstruction"] == pytest.approx(0.5)
    assert values["velocity.brightness_error.reconstruction"] == pytest.approx(0.5)
    assert values["velocity.brightness.draw"] == pytest.approx(1.0)
    assert values["velocity.brightness.sampler"] == pytest.approx(1.0)


def test_release_errors_are_shares_of_what_is_allowed(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    assert error_of_allowed(np.array([0.1, 2.0]), np.array([0.2, 2.1])) == pytest.approx([2.0, 0.5])
    section = Release(notes)
    measured = measure(
        takes_of(section),
        lambda take: make_features(release_seconds=0.3 if take.kind is Kind.GENERATED else 0.2),
    )
    values = Values(section.judge(measured))
    assert values["release.error_of_allowed"] == pytest.approx(2.0)
    assert values["release.error_of_allowed.reconstruction"] == pytest.approx(0.0)
    assert values["release.error"] == pytest.approx(100.0)
    assert values.figure("release.3s.error").estimate.n == 0  # no note is held that long: null in the report


def test_variety_compares_seeds_with_draws(notes: EvaluationSet, measure: Measure) -> None:
    section = Variety(notes)
    second = {b for _, b in section.generated}
    measured = measure(takes_of(section), mel=lambda take: flat_mel(-13.0 if take in second else -10.0))
    values = Values(section.judge(measured))
    assert values["variety.generated"] == pytest.approx(3.0, abs=0.05)
    assert values["variety.source"] == pytest.approx(0.0)


def test_locate_ranks_the_published_points(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """All lands where it should, but for what the bundle wrote: that all lands on the first instrument."""
    section = Locate(notes)
    own = {
        take: notes.points[notes.instrument_of[row]]
        for name in ("trained", "held_out", "of_each")
        for row, take in zip(section.rows[name], section.takes[name], strict=True)
    }

    def features(take: Take) -> NoteFeatures:
        x, y = own.get(take, notes.points[0])
        return make_features(x=float(x), y=float(y))

    report = section.judge(measure(takes_of(section), features))
    values, (overlaps,) = Values(report), report.tables
    of_first = float(np.mean(notes.instrument_of[section.rows["generated"]] == 0))
    assert values["locate.generated_nearest"] == pytest.approx(of_first)
    assert values["locate.held_out_among_5"] == 1.0
    assert values["locate.apart"] == 1.0 and not overlaps.rows
    assert {notes.instrument_of[row] for row in section.rows["of_each"]} == set(range(len(notes.instruments)))


def test_instruments_whose_notes_scatter_are_listed(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    section = Locate(notes)
    report = section.judge(measure(takes_of(section), lambda take: make_features(x=0.0, y=0.0)))
    (overlaps,) = report.tables
    assert Values(report)["locate.apart"] < 1.0 and overlaps.rows


def test_rank_counts_the_points_that_are_nearer() -> None:
    points = np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]])
    located = np.array([[0.1, 0.0], [0.9, 0.0]])
    assert ranks(located, np.array([0, 0]), points).tolist() == [0, 2]
    assert ranks(np.full((1, 2), np.nan), np.array([0]), points).tolist() == [3]


def test_the_map_probe_sees_what_is_there_and_no_more(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """Notes land by their instrument, shifted a little by pitch: the probe must see both, and no velocity."""
    section = MapQuality(notes)
    rows = {
        take: int(row)
        for name in section.rows
        for row, take in zip(section.rows[name], section.takes[name], strict=True)
    }

    def features(take: Take) -> NoteFeatures:
        x, y = notes.points[notes.instrument_of[rows[take]]]
        return make_features(x=float(x), y=float(y))

    values = Values(section.judge(measure(takes_of(section), features)))
    assert values["map.velocity.trained"] < 0.3
    assert values["map.instrument.held_out.chance"] < 0.6
    assert values["map.family.held_out"] >= values["map.family.held_out.chance"]


def test_the_neighbours_of_many_notes_are_looked_for_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """All distances of twenty thousand notes at once are more than memories hold."""
    points = np.random.default_rng(0).random((3000, 2))
    at_once: list[int] = []
    norm = np.linalg.norm

    def measure(*given: Any, **how: Any) -> Any:
        found = norm(*given, **how)
        at_once.append(found.size)
        return found

    with monkeypatch.context() as watched:
        watched.setattr(np.linalg, "norm", measure)
        found = nearest_known(points, points, same=True)
    assert max(at_once) <= 200 * 3000 and sum(at_once) == 3000 * 3000
    for row in (0, 199, 200, 2999):
        away = np.linalg.norm(points - points[row], axis=1)
        assert set(found[row]) == set(np.argsort(away)[1 : found.shape[1] + 1])


PERFECT = Likeness(
    log_mel_db=0.0,
    moved_db=(0.05,) * 6,
    held=(100,) * 6,
    modulation_db=(0.0,) * 6,
    cents=(0.0,) * 8 + (np.nan,) * 8,
    partial_db=(0.0,) * 8 + (np.nan,) * 8,
    valley_db=0.0,
    third_octave_db=0.0,
    peaked_db=0.0,
    attack_ms=0.0,
    decay_db_per_s=(0.0,) * 6,
    level_db=0.0,
)


def test_truth_sets_candidates_beside_their_sources(notes: EvaluationSet, cache: TakeCache) -> None:
    """The codec smears the violin by 12 dB in its third octaves, and lets half of the held levels move."""
    section = Truth(notes)
    violin = notes.instruments.index("Violin")
    for source, take in section.compared:
        found = PERFECT
        if take.kind is Kind.RECONSTRUCTION:
            smeared = 12.0 if notes.instrument_of[source.row] == violin else 1.0
            found = replace(PERFECT, third_octave_db=smeared, attack_ms=-6.0, moved_db=(0.05, 0.25) * 3)
            found = replace(found, peaked_db=-2.0)
        cache.save_likeness(source, take, found)
    report = section.judge(Measurements(cache))
    values = Values(report)
    assert values["truth.formants.reconstruction"] == 12.0
    assert values.figure("truth.formants.reconstruction").met is False
    assert values["truth.thirds.reconstruction"] == 1.0 and values["truth.thirds.sampler"] == 0.0
    assert values["truth.all_peaked.reconstruction"] == 2.0 and values["truth.all_peaked.draw"] == 0.0
    assert values["truth.attack.reconstruction"] == 6.0 and values["truth.attack.draw"] == 0.0
    assert values["truth.moved.reconstruction"] == pytest.approx(0.15)
    assert values["truth.moved.generated"] == pytest.approx(0.05)
    by_group, by_range = report.tables
    shown = {row[:2]: row[2:] for row in by_group.rows}
    assert shown["Violin", "codec"][7] == 12.0 and shown["Flute", "codec"][7] == 1.0
    assert {row[0] for row in by_group.rows} >= {"all", "struck or plucked", "sustained", "Trumpet"}
    assert ("codec", "moved", 0.05, 0.25, 0.05, 0.25, 0.05, 0.25) in by_range.rows


def test_the_two_sample_test_tells_what_differs(notes: EvaluationSet, measure: Measure) -> None:
    """The codec's statistics are shifted; all others' are drawn as the source's."""
    section = TwoSample(notes)
    takes = [*section.sources, *(take for _, take in section.compared)]
    rng = np.random.default_rng(8)

    def statistics(take: Take) -> NDArray[np.float32]:
        return (rng.normal(size=12) + 4.0 * (take.kind is Kind.RECONSTRUCTION)).astype(np.float32)

    report = section.judge(measure(takes, statistics=statistics))
    values = Values(report)
    assert values["two_sample.reconstruction"] > 0.9
    assert values.figure("two_sample.reconstruction").met is False
    assert values["two_sample.reconstruction.worst_instrument"] >= values["two_sample.reconstruction"]
    for other in ("draw", "sampler", "generated"):
        assert 0.2 < values[f"two_sample.{other}"] < 0.8
    assert values["two_sample.generated_from_reconstruction"] > 0.9
    (table,) = report.tables
    assert [row[0] for row in table.rows][-4:] == sorted(notes.instruments)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_sampler_falls_behind_where_its_samples_lie_far_apart(
    notes: EvaluationSet, cache: TakeCache
) -> None:
    """Written notes are 2 dB from their sources, the sampler's a dB for each semitone to its sample."""
    section = Gaps(notes)
    away = np.abs(
        [int(notes.library.pitch[take.row]) - take.pitch for take in section.takes["sampler"] if take]
    )
    rng = np.random.default_rng(3)
    for source, take in section.compared:
        distance = 2.0
        if take.kind is Kind.SAMPLER:
            distance = float(abs(int(notes.library.pitch[take.row]) - take.pitch))
        partials = (np.nan if notes.name(source.row) == "Violin" else distance,) * 16  # as of noise
        cache.save_likeness(source, take, replace(PERFECT, log_mel_db=distance, partial_db=partials))
        for each in (source, take):
            cache.save_statistics(each, rng.normal(size=12).astype(np.float32))
    report = section.judge(Measurements(cache))
    values, spacings = Values(report), np.array(section.spacings)
    assert set(section.spacings) <= {2, 4, 6, 12} and max(spacings) >= 6
    for gap in set(section.spacings):
        here = away[spacings == gap]
        assert values[f"gaps.log_mel.generated.{gap}"] == values[f"gaps.all_partials.generated.{gap}"] == 2.0
        assert values[f"gaps.log_mel.sampler.{gap}"] == np.median(here) <= gap / 2
        assert values[f"gaps.log_mel.nearer.{gap}"] == np.mean(here > 2)
        assert 0.0 <= values[f"gaps.auc.sampler.{gap}"] <= 1.0
    (table,) = report.tables
    assert {row[0] for row in table.rows} >= {"sustained", *section.sources_of}
    by_instrument = [row[:2] for row in table.rows if row[0] in notes.instruments]
    assert by_instrument and {gap for _, gap in by_instrument} == {max(section.spacings)}
    assert np.isnan({row[0]: row for row in table.rows}["Violin"][-1])
    assert "learnt from all: " in report.method


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(
    notes: EvaluationSet, cache: TakeCache, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    take = notes.generated(int(np.flatnonzero(notes.usable)[0]))
    writes = (
        lambda: cache.save_codes(take, np.zeros((500, 10), np.uint16), truncated=False),
        lambda: cache.save_mel(take, np.zeros((500, 80), np.float32)),
    )
    for write in writes:
        with (
            full_disk(1000),
            pytest.raises(WriteError, match=r"generated-.*: cannot be written .*; make room"),
        ):
            write()
    assert not list(cache.folder.iterdir())


def test_what_a_power_cut_left_of_a_file_is_made_anew_and_a_damaged_one_is_named(
    notes: EvaluationSet, cache: TakeCache, make_features: MakeFeatures
) -> None:
    take = notes.generated(int(np.flatnonzero(notes.usable)[0]))
    cache.save_codes(take, np.zeros((5, 10), np.uint16), truncated=False)
    cache.save_mel(take, flat_mel(0.0))
    cache.save_features(take, make_features())
    cache.save_statistics(take, np.zeros(5, np.float32))
    kinds = (CODES, MEL, FEATURES, STATISTICS)
    assert cache.has(take, *kinds)
    for kind, read in zip(kinds, (cache.codes, cache.mel, cache.features, cache.statistics), strict=True):
        file = cache.folder / f"{take.id}.{kind}"
        file.write_bytes(file.read_bytes()[:40])
        with pytest.raises(TrainingError, match=rf"{file.name}: damaged; delete it, and the same command"):
            read(take)
        file.write_bytes(b"")
        assert not cache.has(take, kind)


def test_a_cell_is_empty_where_nothing_could_be_measured() -> None:
    table = Table("By octave", ("octave", "notes", "dB"), (("C4 to B4", 3, float("nan")), ("C5", 12, 0.25)))
    section = SectionReport("trained", "Trained cells", "Notes.", (), (table,))
    html = render_page(Report("tiny", "0", "notes", {}, (section,)), "<svg/>", [])
    assert "nan" not in html
    assert '<td>C4 to B4</td><td class="number">3</td><td></td>' in html
    assert '<td class="number">12</td><td class="number">0.250</td>' in html
    assert list(section.lines())[-2:] == ["  C4 to B4, 3, -", "  C5, 12, 0.250"]
