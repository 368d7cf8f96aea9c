"""The whole evaluation: choose the takes, make them, measure them, judge them, report."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timbrel.demo import require_matplotlib
from timbrel.pitch import PitchMeter
from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import atomic_write
from timbrel_posttraining.bundles import NoteCoder
from timbrel_posttraining.evaluate import listening, page
from timbrel_posttraining.evaluate.evaluation_set import HIGHEST, LOWEST, EvaluationSet, Take
from timbrel_posttraining.evaluate.report import Report, SectionReport
from timbrel_posttraining.evaluate.sections import SECTIONS, fidelity
from timbrel_posttraining.evaluate.sections.realism import Realism
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements, TakeAudio, TakeCache, measure_takes, write_takes
from timbrel_training.errors import ConfigError, writing
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
MAP_PICTURE = "map.svg"
LISTENING = "listening.html"
WRITTEN = (REPORT_JSON, REPORT_HTML, LISTENING)
"""What is for reading and for listening."""


@dataclass(frozen=True)
class Settings:
    """Says which bundle is judged, and how thoroughly. Raises ConfigError: a number is not positive, or `out`
    is a file."""

    bundle: Path
    """The bundle's folder."""
    notes: Path
    """The library that it is held against: the one it learnt from."""
    out: Path
    """Folder for the report, and for what makes a second run short."""
    count: int = 2000
    """Notes of the largest sections; the others take a share of it."""
    jobs: int = 1
    """Processes that measure."""
    sections: tuple[str, ...] = ()
    """Names of the sections to judge; all of them, and a report, where none is named."""

    def __post_init__(self) -> None:
        for name in ("count", "jobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file, a folder is needed")


def evaluate(settings: Settings) -> Report:
    """Judges a bundle; writes report.json, report.html, listening.html and map.svg, each whole or not at all.

    All takes and measurements are kept beside them: a second run, or one after a kill, makes only what is
    missing. Raises BundleError: the bundle cannot be used; TrainingError: the library cannot be used, or has
    nothing in common with the bundle, or the disk is full; MissingExtraError: an optional part of timbrel is
    not installed.
    """
    require_matplotlib()
    notes, cache = _open(settings)
    sections = [make(notes) for make in SECTIONS]
    measured = _measure(settings, sections, cache)
    report = Report(
        bundle_name=notes.bundle.manifest.name,
        bundle_hash=notes.bundle.manifest.bundle_hash,
        library=", ".join(notes.library.sources),
        settings={"count": settings.count, "pitches": f"{LOWEST} to {HIGHEST}", "sampling": "server default"},
        sections=tuple(_judge(sections, measured)),
    )
    picture = _map(notes, measured)
    pictured = [section for section in sections if isinstance(section, fidelity.Fidelity)]
    html = page.render_page(report, picture, list(page.examples_of(notes, pictured, measured)))
    realism = next(section for section in sections if isinstance(section, Realism))
    heard = listening.notes_to_hear(notes, realism, TakeAudio(notes.bundle, notes.library, cache))
    test = listening.render_listening(notes.bundle, heard)
    with writing(settings.out):
        atomic_write(settings.out / LISTENING, test)
        atomic_write(settings.out / REPORT_JSON, report.to_json())
        atomic_write(settings.out / REPORT_HTML, html)
        atomic_write(settings.out / MAP_PICTURE, picture + "\n")
    return report


def judge_sections(settings: Settings) -> tuple[SectionReport, ...]:
    """Judges the sections that `settings` names, and writes no report; the measurements are kept for one.
    Raises ConfigError: there is no section of a name; others as `evaluate`."""
    notes, cache = _open(settings)
    known = {section.name: section for section in SECTIONS}
    for name in settings.sections:
        if name not in known:
            raise ConfigError(f"--section {name}: there is none of that name; choose of {', '.join(known)}")
    sections = [known[name](notes) for name in settings.sections]
    measured = _measure(settings, sections, cache)
    return tuple(_judge(sections, measured))


def merge(sections: Iterable[Section]) -> dict[Take, bool]:
    """Collects the takes of all sections, each once, and whether any section wants it measured in full."""
    wanted: dict[Take, bool] = {}
    for section in sections:
        for take in section.requested:
            wanted[take] = section.in_full or wanted.get(take, False)
    return wanted


def _open(settings: Settings) -> tuple[EvaluationSet, TakeCache]:
    """Opens the bundle beside its library, and the takes that were made of them before; tells of notes that
    it did not learn from."""
    PitchMeter()  # what is not installed is told before the long work
    bundle = Bundle.open(settings.bundle)
    bundle.require()
    NoteCoder(bundle)  # likewise where its codec is not known here
    library = NoteDataset(settings.notes)
    learnt = {source.name for source in bundle.manifest.training.sources}
    if strange := ", ".join(name for name in library.sources if name not in learnt):
        print(
            f"timbrel: {settings.notes}: the bundle did not learn from {strange}, by its manifest; "
            "what is said of trained and of held-out notes may not hold for these",
            file=sys.stderr,
        )
    return EvaluationSet(bundle, library, settings.count), TakeCache.open(settings.out, bundle, library)


def _measure(settings: Settings, sections: Sequence[Section], cache: TakeCache) -> Measurements:
    """Makes and measures the takes that the sections want."""
    wanted = merge(sections)
    pairs = [pair for section in sections for pair in section.compared]
    written = dict.fromkeys([*wanted, *(take for _, take in pairs)])
    write_takes(settings.bundle, written, cache)
    measure_takes(settings.bundle, settings.notes, wanted, pairs, cache, settings.jobs)
    return Measurements(cache)


def _judge(sections: Sequence[Section], measured: Measurements) -> Iterable[SectionReport]:
    with bar("judging", len(sections), "section") as shown:
        for section in sections:
            yield section.judge(measured)
            shown.update()


def _map(notes: EvaluationSet, measured: Measurements) -> str:
    """Draws the map, with the source notes that were located."""
    rows = [int(row) for row in notes.pick(Split.TRAIN, notes.count)]
    located = measured.points([notes.source(row) for row in rows])
    somewhere = np.flatnonzero(~np.isnan(located).any(axis=1))
    families = [notes.family(rows[number]) for number in somewhere]
    return page.map_svg(notes.points, notes.instruments, notes.families, located[somewhere], families)
