"""What the sections make of measurements whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.measure.features import NoteFeatures
from timbrel_posttraining.evaluate.report import Figure, SectionReport
from timbrel_posttraining.evaluate.sections.fidelity import Between, TrainedCells
from timbrel_posttraining.evaluate.sections.identity import Consistency, Identity
from timbrel_posttraining.evaluate.sections.map import Locate, MapQuality, ranks
from timbrel_posttraining.evaluate.sections.response import Release, Velocity, error_of_allowed
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.sections.whole_bundle import (
    N_POINTS,
    Frechet,
    Smoothness,
    Variety,
    path_points,
)
from timbrel_posttraining.evaluate.takes import Measurements

MakeFeatures = Callable[..., NoteFeatures]
Measure = Callable[..., Measurements]


@dataclass(frozen=True)
class Values:
    """A report's values by name."""

    report: SectionReport

    def __getitem__(self, name: str) -> float:
        return self.figure(name).estimate.value

    def figure(self, name: str) -> Figure:
        return next(figure for figure in self.report.figures if figure.name == name)


def takes_of(section: Section) -> list[Take]:
    return list(dict.fromkeys(section.requested()))


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
    assert (
        values["trained.in_tune.lost_by_codec"] == 0.0 and values.figure("trained.in_tune.lost_by_codec").met
    )
    assert values["trained.in_tune.lost_by_model"] == pytest.approx(0.5)
    assert values.figure("trained.in_tune.lost_by_model").met is False
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
    assert values.figure("between.in_tune").met is False


def test_consistency_compares_with_real_instruments(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """Real pairs point the same way; of generated pairs one note is turned by 60 degrees: cosine 0.5."""
    section = Consistency(notes)
    turned = set(section.takes[Kind.GENERATED][1]) - set(section.takes[Kind.GENERATED][0])
    straight, askew = np.eye(12)[0], np.array([0.5, np.sqrt(0.75), *np.zeros(10)])
    measured = measure(
        takes_of(section),
        lambda take: make_features(mfcc=tuple(askew if take in turned else straight)),
    )
    values = Values(section.judge(measured))
    expected = np.mean(
        [
            0.5 if (a in turned) != (b in turned) else 1.0
            for a, b in zip(*section.takes[Kind.GENERATED], strict=True)
        ]
    )
    assert values["consistency.source"] == pytest.approx(1.0)
    assert values["consistency.generated"] == pytest.approx(expected) and expected < 1.0
    assert values["consistency.ratio"] == pytest.approx(expected)


def test_frechet_stands_beside_its_floor(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """All vary alike, and the generated notes are 3 dB louder in every band: 9 dB^2 for each of 20 means."""
    section = Frechet(notes)
    rng = np.random.default_rng(0)
    varied = {take.row: rng.normal(size=40) for take in section.reference}
    pairs = dict(zip(section.others["generated"], section.reference, strict=True))

    def features(take: Take) -> NoteFeatures:
        if take.kind is Kind.GENERATED:
            return make_features(statistics=tuple(varied[pairs[take].row] + 3.0 * (np.arange(40) < 20)))
        return make_features(statistics=tuple(varied.get(take.row, np.zeros(40))))

    values = Values(section.judge(measure(takes_of(section), features)))
    assert values["frechet.generated"] == pytest.approx(180.0)
    assert values["frechet.reconstruction"] == pytest.approx(0.0, abs=1e-6)
    assert 0.0 < values["frechet.floor"] < 180.0
    estimate = values.figure("frechet.generated").estimate
    assert estimate.low < estimate.value < estimate.high


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


def test_an_even_path_is_smooth_and_a_leap_is_not(notes: EvaluationSet, measure: Measure) -> None:
    """Half of the paths change by equal steps, the others all at once in the middle."""
    section = Smoothness(notes)
    place = {
        take: (number, position)
        for number, path in enumerate(section.paths)
        for position, point in enumerate(path)
        for take in point
    }

    def mel(take: Take) -> NDArray[np.float32]:
        number, position = place[take]
        return flat_mel(-20.0 * (position >= N_POINTS // 2) if number % 2 else -2.5 * position)

    values = Values(section.judge(measure(takes_of(section), mel=mel)))
    assert len(section.paths) == 2
    assert values["smoothness.largest_step"] == pytest.approx((1 / 8 + 1.0) / 2, abs=0.02)
    assert values["smoothness.paths_within"] == pytest.approx(0.5)


def test_paths_are_straight_and_within_the_disc() -> None:
    points = path_points(np.random.default_rng(1))
    steps = np.diff(points, axis=0)
    assert points.shape == (N_POINTS, 2) and np.linalg.norm(points, axis=1).max() <= 1
    assert steps == pytest.approx(np.tile(steps[0], (N_POINTS - 1, 1)))


def test_velocity_tells_a_wrong_level_and_a_reversed_brightness(
    notes: EvaluationSet, make_features: MakeFeatures, measure: Measure
) -> None:
    """The bundle plays the soft notes 6 dB too loud, and gets duller where the source gets brighter."""
    section = Velocity(notes)
    soft = {cell[20] for cell in section.takes[Kind.GENERATED] if 20 in cell}

    def features(take: Take) -> NoteFeatures:
        sign = -1 if take.kind is Kind.GENERATED else 1
        return make_features(
            level_db=-14.0 if take in soft else -20.0, brightness=2000.0 + sign * take.velocity
        )

    values = Values(section.judge(measure(takes_of(section), features)))
    assert soft
    assert values["velocity.level_error"] == pytest.approx(6.0)
    assert values.figure("velocity.level_error").met is False
    assert values["velocity.level_bias.20.generated"] == pytest.approx(6.0)
    assert values["velocity.level_error.80.generated"] == pytest.approx(0.0)
    assert values["velocity.brightness.generated"] == pytest.approx(-1.0)
    assert values["velocity.brightness.reconstruction"] == pytest.approx(1.0)


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
        for name in ("trained", "held_out")
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
