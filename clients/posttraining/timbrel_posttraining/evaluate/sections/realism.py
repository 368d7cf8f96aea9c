"""Are notes told from real ones, and how like the very note are they? By kind of sound and instrument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.estimates import NOTHING, Estimate
from timbrel_posttraining.evaluate.evaluation_set import KINDS_OF_SOUND, EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.measure.likeness import Likeness
from timbrel_posttraining.evaluate.measure.two_sample import Scores, two_sample
from timbrel_posttraining.evaluate.report import CellValue, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

MOST_NOTES = 2000
"""Notes are at most so many. The more, the more a judge learns: by 400 it told the passages of one codec with
an AUC of 0.69, by 1,745 with 0.77."""

FEWEST_NOTES = 6
"""An instrument with fewer notes is not looked at for the worst: its AUC is chance."""

CANDIDATES = {
    "draw": "another draw of the source",
    "sampler": "repitching sampler",
    "reconstruction": "codec",
    "generated": "written",
}
"""What is held against the source notes."""
MADE = ("reconstruction", "generated")

FIRST_PARTIALS = 8
"""Partials that the figures are of."""
STEADY_PARTIALS = ("grand piano", "guitar (steel)", "vibraphone", "marimba", "celesta")
"""Words in the names of instruments whose partials stand still, so that cents tell."""
WITH_FORMANTS = ("violin", "string ensemble")
"""Words in the names of instruments with fixed resonances."""
WITH_PULSES = ("brass", "trumpet", "sax", "reed", "lead", "voice", "bowed string")
"""Words in the names of instruments whose partials are locked in phase."""
RANGES = ("to 0.5 kHz", "to 1.2 kHz", "to 2.4 kHz", "to 4.4 kHz", "to 7.8 kHz", "to 14 kHz")
"""The ranges of frequency of `Likeness`."""

Columns = Sequence[Likeness]
Places = tuple[Scores, NDArray[np.intp]]
"""The scores of a test, and the places in the section's rows that they are of."""
Numbers = NDArray[np.float64]


class Realism(Section):
    """Holds candidates against source notes of held-out cells."""

    def __init__(self, notes: EvaluationSet) -> None:
        self.rows = self.chosen(notes)
        self.sources = [notes.source(row) for row in self.rows]
        self.takes = self.candidates(notes)
        self.compared = [
            (source, take)
            for takes in self.takes.values()
            for source, take in zip(self.sources, takes, strict=True)
            if take is not None
        ]
        self.instruments = np.array([notes.name(row) for row in self.rows], dtype=object)
        self.kinds = np.array([notes.kind_of_sound(row) for row in self.rows], dtype=object)
        self.of_kinds = [(kind, self.kinds == kind) for kind in KINDS_OF_SOUND]
        self.of_instruments = [(name, self.instruments == name) for name in sorted(set(self.instruments))]
        """Kinds of sound, and instruments, with flags [n] of their rows."""
        cells = notes.instrument_of[self.rows] * 128 + notes.library.pitch[self.rows]
        self.cells = np.asarray(cells, dtype=np.int64)
        """[n], a number for the instrument and pitch."""

    def chosen(self, notes: EvaluationSet) -> list[int]:
        """Chooses the rows of the library that are judged: notes of held-out cells."""
        return [int(row) for row in notes.pick(Split.HELD_OUT_CELL, min(notes.count, MOST_NOTES))]

    def candidates(self, notes: EvaluationSet) -> dict[str, list[Take | None]]:
        """Makes the candidates of each row; None where the library has none."""
        return {
            "draw": [notes.another_draw(row) for row in self.rows],
            "sampler": [notes.sampler(row) for row in self.rows],
            "reconstruction": [notes.take(Kind.RECONSTRUCTION, row) for row in self.rows],
            "generated": [notes.generated(row) for row in self.rows],
        }

    def known(self, *names: str) -> NDArray[np.intp]:
        """Lists the places in `rows` that have all of these candidates."""
        return np.array(
            [n for n in range(len(self.rows)) if all(self.takes[name][n] is not None for name in names)],
            dtype=np.intp,
        )

    def named(self, words: Iterable[str]) -> NDArray[np.bool_]:
        """Flags [n] the rows whose instrument's name has one of the words."""
        return np.array(
            [any(word in name.lower() for word in words) for name in self.instruments], dtype=bool
        )

    def told(self, measured: Measurements, name: str, against: str | None = None) -> Places | None:
        """Tests whether a candidate is told from the source notes, or from another candidate."""
        places = self.known(name, *([against] if against else []))
        if not len(places):
            return None
        of_source = self.sources if against is None else self.takes[against]
        first, second = (
            [take for n in places if (take := takes[n]) is not None]
            for takes in (of_source, self.takes[name])
        )
        recordings = [take.row if take.kind is Kind.SAMPLER else -1 for take in second]
        of_first, of_second = measured.statistics(first), measured.statistics(second)
        scores = two_sample(of_first, of_second, self.cells[places], recordings)
        return None if scores is None else (scores, places)

    def found(self, measured: Measurements, name: str) -> tuple[NDArray[np.intp], list[Likeness]]:
        """The places in `rows` that have this candidate, and how like their sources these are."""
        places = self.known(name)
        takes = self.takes[name]
        return places, [
            measured.likeness(self.sources[n], take) for n in places if (take := takes[n]) is not None
        ]


class TwoSample(Realism):
    """Asks a classifier that was trained on other cells which notes are source notes."""

    name: ClassVar[str] = "two_sample"

    def judge(self, measured: Measurements) -> SectionReport:
        tests = {name: self.told(measured, name) for name in CANDIDATES}
        figures = [
            figure for name, label in CANDIDATES.items() for figure in self._figures(name, label, tests[name])
        ]
        written = self.told(measured, "generated", "reconstruction")
        label = "AUC, 0.5 is chance: written notes from the codec's passages"
        figures.append(Figure("two_sample.generated_from_reconstruction", label, auc_of(written)))
        rows: tuple[tuple[CellValue, ...], ...] = tuple(
            (group, int(flags.sum()), *(auc_of(test, flags).value for test in tests.values()))
            for group, flags in self.of_kinds + self.of_instruments
            if flags.any()
        )
        columns = ("", "notes", *CANDIDATES.values())
        method = (
            f"{len(self.rows)} source notes of {len(set(self.cells))} held-out cells, each beside another "
            "draw of its cell, the nearest trained note resampled to the pitch, its own passage through the "
            "codec, and the note that the bundle writes. Boosted trees are trained to tell each kind from "
            "source notes by statistics of 10 ms log-mel levels, in which what is 60 dB below the peak or "
            "masked is floored, and asked about cells, and samples of the sampler, that they were not "
            "trained on. Loudness and single bands' noise floors do not count: see "
            "`measure/note_statistics.py`. The worst "
            f"instrument is one with at least {FEWEST_NOTES} notes; of many with few notes each it is also "
            "the unluckiest."
        )
        return SectionReport(
            self.name, "Told from source notes", method, tuple(figures), (Table("AUC", columns, rows),)
        )

    def _figures(self, name: str, label: str, test: Places | None) -> Iterator[Figure]:
        yield Figure(f"two_sample.{name}", f"AUC, 0.5 is chance: {label}", auc_of(test))
        for kind, flags in self.of_kinds:
            yield Figure(f"two_sample.{name}.{kind.split()[0]}", f"AUC, {kind}: {label}", auc_of(test, flags))
        if name in MADE:
            for what, some in (("kind", self.of_kinds), ("instrument", self.of_instruments)):
                found = [auc_of(test, flags) for _, flags in some]
                judged = [each for each in found if each.n >= FEWEST_NOTES]
                worst = max(judged, key=lambda each: each.value, default=NOTHING)
                yield Figure(f"two_sample.{name}.worst_{what}", f"AUC, worst {what}: {label}", worst)


def auc_of(test: Places | None, flags: NDArray[np.bool_] | None = None) -> Estimate:
    """The AUC of a test, of the rows flagged alone."""
    if test is None:
        return NOTHING
    scores, places = test
    return scores.auc() if flags is None else scores.auc_of(flags[places])


def _scalar(field: str) -> Callable[[Columns], Numbers]:
    return lambda found: np.abs([float(getattr(each, field)) for each in found])


def _mean_of(field: str) -> Callable[[Columns], Numbers]:
    return lambda found: over_known(np.nanmean, np.abs([getattr(each, field) for each in found]))


def _first_partials(field: str) -> Callable[[Columns], Numbers]:
    return lambda found: over_known(np.nanmedian, [getattr(each, field)[:FIRST_PARTIALS] for each in found])


MEASURES: Mapping[str, tuple[str, str, Callable[[Columns], Numbers]]] = {
    "log_mel": ("masked log-mel distance", "dB", _scalar("log_mel_db")),
    "modulation": ("modulation at 2 to 50 Hz, error", "dB", _mean_of("modulation_db")),
    "all_cents": (f"frequencies of the first {FIRST_PARTIALS} partials", "cents", _first_partials("cents")),
    "all_partials": (f"levels of the first {FIRST_PARTIALS} partials", "dB", _first_partials("partial_db")),
    "valleys": ("depth of the valleys between partials, error", "dB", _scalar("valley_db")),
    "thirds": ("levels of third octaves, error", "dB", _scalar("third_octave_db")),
    "all_peaked": ("kurtosis of the wave above 500 Hz, error", "dB", _scalar("peaked_db")),
    "attack": ("attack in the first 80 ms, error", "ms", _scalar("attack_ms")),
    "decay": ("decay of the bands in dB a second, error", "", _mean_of("decay_db_per_s")),
    "level": ("level, error", "dB", _scalar("level_db")),
}
"""By the figures' names: what each says, its unit, and the notes' values. Figures are their medians."""

OF_SOME = (
    ("cents", "all_cents", STEADY_PARTIALS),
    ("partials", "all_partials", STEADY_PARTIALS),
    ("formants", "thirds", WITH_FORMANTS),
    ("peaked", "all_peaked", WITH_PULSES),
)
"""Figures of the instruments alone that have one of the words in their names."""


class Truth(Realism):
    """Compares each candidate with the very note that it stands for."""

    name: ClassVar[str] = "truth"

    def judge(self, measured: Measurements) -> SectionReport:
        found = {name: self.found(measured, name) for name in CANDIDATES}
        everything = np.ones(len(self.rows), dtype=bool)
        figures = [figure for name in CANDIDATES for figure in self._figures(name, *found[name])]
        groups = [("all", everything), *self.of_kinds, *self.of_instruments]
        rows: list[tuple[CellValue, ...]] = [
            (group, CANDIDATES[name], int(flags[found[name][0]].sum()), *self._medians(*found[name], flags))
            for group, flags in groups
            for name in CANDIDATES
            if flags[found[name][0]].any()
        ]
        labels = ("moved dB", *(f"{label} {unit}".strip() for label, unit, _ in MEASURES.values()))
        tables = (
            Table("By kind of sound and by instrument, medians", ("", "", "notes", *labels), tuple(rows)),
            Table(
                "By range of frequency, medians: moved dB, modulation less the source's dB, decay less the "
                "source's dB/s",
                ("", "measure", *RANGES),
                tuple(row for name in CANDIDATES for row in _by_range(CANDIDATES[name], found[name][1])),
            ),
        )
        method = (
            "The same notes, each aligned to its source's onset; where they were not held for the same time, "
            "while both are held. Log-mel as above, levels matched. Moved: the level's median step from one "
            "10 ms to the next where the source's is at most 0.1 dB. Partials: the peaks of the source's "
            "first second, wherever they are, each beside the strongest within 50 cents of it. Intervals by "
            "drawing cells anew."
        )
        return SectionReport(self.name, "Likeness to the very note", method, tuple(figures), tables)

    def _figures(self, name: str, places: NDArray[np.intp], found: Columns) -> Iterator[Figure]:
        label, cells = CANDIDATES[name], self.cells[places]
        steps, counts = _movement(found)
        moved = estimates.joint(_weighted_mean, steps, counts, groups=cells)
        yield Figure(f"truth.moved.{name}", f"movement of what the source holds: {label}", moved, "dB")
        for measure, (what, unit, value) in MEASURES.items():
            estimate = estimates.median(value(found), groups=cells)
            yield Figure(f"truth.{measure}.{name}", f"{what}: {label}", estimate, unit)
        for measure, of, words in OF_SOME:
            what, unit, value = MEASURES[of]
            some = np.flatnonzero(self.named(words)[places]).tolist()
            estimate = estimates.median(value([found[n] for n in some]), groups=cells[some])
            who = ", ".join(words)
            yield Figure(f"truth.{measure}.{name}", f"{what}, of {who}: {label}", estimate, unit)

    def _medians(self, places: NDArray[np.intp], found: Columns, flags: NDArray[np.bool_]) -> list[float]:
        some = [found[n] for n in np.flatnonzero(flags[places]).tolist()]
        values = [value(some) for _, _, value in MEASURES.values()]
        return [
            _weighted_mean(*_movement(some)),
            *(float(over_known(np.nanmedian, each[None])[0]) for each in values),
        ]


def _movement(found: Columns) -> tuple[Numbers, Numbers]:
    """The movement of each note in dB, over its ranges, and the number of levels that it rests on."""
    steps = np.array([each.moved_db for each in found], dtype=np.float64).reshape(len(found), len(RANGES))
    counts = np.array([each.held for each in found], dtype=np.float64).reshape(len(found), len(RANGES))
    total = counts.sum(axis=1)
    return np.nansum(steps * counts, axis=1) / np.maximum(total, 1.0), total


def _weighted_mean(values: Numbers, weights: Numbers) -> float:
    return float((values * weights).sum() / weights.sum()) if weights.sum() else float("nan")


def _by_range(label: str, found: Columns) -> Iterator[tuple[CellValue, ...]]:
    for what, field in (("moved", "moved_db"), ("modulation", "modulation_db"), ("decay", "decay_db_per_s")):
        values = np.array([getattr(each, field) for each in found], dtype=np.float64)
        if len(values):
            yield (label, what, *map(float, over_known(np.nanmedian, values.T)))


def over_known(statistic: Callable[..., Numbers], rows: Sequence[Sequence[float]] | Numbers) -> Numbers:
    """A statistic of each row [n, m] over what is not NaN; NaN where nothing is."""
    return np.array([statistic(row) if not np.isnan(row).all() else np.nan for row in np.asarray(rows)])
