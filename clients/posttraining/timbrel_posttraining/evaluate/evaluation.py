"""The whole evaluation: choose the takes, make them, measure them, judge them, report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from timbrel.demo import require_matplotlib
from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import atomic_write
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.examples import examples_of
from timbrel_posttraining.evaluate.figure import SectionReport
from timbrel_posttraining.evaluate.generation import write_takes
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import HIGHEST, LOWEST, Material
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_posttraining.evaluate.measuring import measure_takes
from timbrel_posttraining.evaluate.page import render_page
from timbrel_posttraining.evaluate.picture import map_svg
from timbrel_posttraining.evaluate.report import Report
from timbrel_posttraining.evaluate.sections.apart import Apart
from timbrel_posttraining.evaluate.sections.between import Between
from timbrel_posttraining.evaluate.sections.cells import Cells
from timbrel_posttraining.evaluate.sections.consistency import Consistency
from timbrel_posttraining.evaluate.sections.frechet import Frechet
from timbrel_posttraining.evaluate.sections.identity import Identity
from timbrel_posttraining.evaluate.sections.locate import Locate
from timbrel_posttraining.evaluate.sections.map_quality import MapQuality
from timbrel_posttraining.evaluate.sections.release import Release
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.sections.size import Size
from timbrel_posttraining.evaluate.sections.smoothness import Smoothness
from timbrel_posttraining.evaluate.sections.variety import Variety
from timbrel_posttraining.evaluate.sections.velocity import Velocity
from timbrel_posttraining.evaluate.settings import Settings
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.errors import ConfigError
from timbrel_training.notes.library import AudioLibrary
from timbrel_training.notes.split import Split

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
MAP_PICTURE = "map.svg"


def evaluate(settings: Settings, *, progress: bool = False) -> Report:
    """Judges a bundle; writes report.json, report.html and map.svg, each whole or not at all.

    What was written and measured is kept beside them: a second run, or one after a kill, makes only what is
    missing.

    Raises:
        BundleError: the bundle cannot be used.
        TrainingError: the library cannot be used, or has nothing in common with the bundle.
        MissingExtraError: an optional part of timbrel is not installed.
    """
    require_matplotlib()
    material, cache = _open(settings)
    cells = _cells(material)
    sections = (*cells, *_further_sections(material))
    heard = _hear(settings, sections, cache, progress=progress)
    report = Report(
        bundle_name=material.bundle.manifest.name,
        bundle_hash=material.bundle.manifest.bundle_hash,
        library=", ".join(material.library.sources),
        settings={"count": settings.count, "pitches": f"{LOWEST} to {HIGHEST}", "sampling": "server default"},
        sections=tuple(_judge(sections, heard, progress=progress)),
    )
    picture = _map(material, heard)
    page = render_page(report, picture, list(examples_of(material, cells, heard)))
    _write(settings.out, report, page, picture)
    return report


def judge_sections(settings: Settings, *, progress: bool = False) -> tuple[SectionReport, ...]:
    """Judges the sections that `settings` names, and writes no report; what was made is kept for one.

    Raises:
        ConfigError: there is no section of a name; others as `evaluate`.
    """
    material, cache = _open(settings)
    known = {section.name: section for section in (*_cells(material), *_further_sections(material))}
    for name in settings.sections:
        if name not in known:
            raise ConfigError(f"--section {name}: there is none of that name; choose of {', '.join(known)}")
    sections = tuple(known[name] for name in settings.sections)
    heard = _hear(settings, sections, cache, progress=progress)
    return tuple(_judge(sections, heard, progress=progress))


def _open(settings: Settings) -> tuple[Material, TakeCache]:
    """What is judged, and what was made of it before."""
    TuningMeter()  # what is not installed is told before the long work
    bundle = Bundle.open(settings.bundle)
    bundle.require()
    library = AudioLibrary(settings.notes)
    return Material(bundle, library, settings.count), TakeCache.open(settings.out, bundle, library)


def _cells(material: Material) -> tuple[Cells, Cells]:
    return (
        Cells(material, Split.TRAIN, "trained", "Trained cells"),
        Cells(material, Split.HELD_OUT_CELL, "held_out", "Held-out cells"),
    )


def _hear(settings: Settings, sections: Sequence[Section], cache: TakeCache, *, progress: bool) -> Heard:
    """Makes and measures what the sections want."""
    wanted = merge(sections)
    write_takes(settings.bundle, wanted, cache, progress=progress)
    measure_takes(settings.bundle, settings.notes, wanted, cache, settings.jobs, progress=progress)
    return Heard(cache)


def merge(sections: Iterable[Section]) -> dict[Take, bool]:
    """The takes of all sections, each once, and whether any section wants it heard in full."""
    wanted: dict[Take, bool] = {}
    for section in sections:
        for take, in_full in section.wanted():
            wanted[take] = in_full or wanted.get(take, False)
    return wanted


def _further_sections(material: Material) -> tuple[Section, ...]:
    return (
        Between(material),
        Apart(material),
        Frechet(material),
        Consistency(material),
        Identity(material),
        Smoothness(material),
        Velocity(material),
        Release(material),
        Variety(material),
        Locate(material),
        MapQuality(material),
        Size(material),
    )


def _judge(sections: Sequence[Section], heard: Heard, *, progress: bool) -> Iterable[SectionReport]:
    with bar("judging", len(sections), "section", shown=progress) as shown:
        for section in sections:
            yield section.judge(heard)
            shown.update()


def _map(material: Material, heard: Heard) -> str:
    """The picture of the map, with the source notes that were located."""
    rows = [int(row) for row in material.pick(Split.TRAIN, material.count)]
    located = heard.points([material.source(row) for row in rows])
    somewhere = np.flatnonzero(~np.isnan(located).any(axis=1))
    families = [material.family(rows[number]) for number in somewhere]
    return map_svg(material.points, material.instruments, material.families, located[somewhere], families)


def _write(out: Path, report: Report, page: str, picture: str) -> None:
    atomic_write(out / REPORT_JSON, report.to_json())
    atomic_write(out / REPORT_HTML, page)
    atomic_write(out / MAP_PICTURE, picture + "\n")
