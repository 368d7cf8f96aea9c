"""The check of a whole library: every test of its files, in order."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from timbrel.errors import refusal
from timbrel.library.finish.manifest import ManifestRow, is_table_of, read_rows
from timbrel.library.plan.folder import DOCUMENTS, MANIFEST, TABLE, LibraryFolder
from timbrel.library.plan.notes import codes_hash
from timbrel.library.render.pitch import TrackerPair, find_trackers
from timbrel.library.render.store import NoteStore
from timbrel.library.render.worker_pool import default_threads
from timbrel.library.verify.file_checks import (
    REMEDY,
    CheckedSample,
    check_dspreset,
    check_sample,
    check_sfz,
    parse_sfz,
    read_tuning,
)
from timbrel.library.verify.report import LibraryFault, ScaleResult, VerifyReport
from timbrel.library.verify.samplers import NO_FLUIDSYNTH, NO_SFIZZ, has_fluidsynth, has_sfizz
from timbrel.library.verify.scale_check import play_scale
from timbrel.library.verify.zone_checks import differences, key_faults
from timbrel.progress import bar
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents

UNSOUND = ("missing", "unreadable", "hash", "format")
"""Kinds of faults with which a sample is not what the manifest says: it is not played."""

OTHER_TABLE = f"was altered, or is of another run: it does not hold what {MANIFEST} does; {REMEDY}"
NOT_COMPARED = f"{TABLE} was not compared with the manifest: this takes the pyarrow that wrote it"

FONT_BYTES = 2**24
"""What a .sf2 file may hold beside its samples."""


def verify_library(
    path: str | os.PathLike[str],
    *,
    out_of_tune_allowed: float = 0.0,
    scale: bool = True,
    show_progress: bool = False,
) -> VerifyReport:
    """Checks a library's folder.

    Args:
        path: the folder.
        out_of_tune_allowed: share of the samples that may be out of tune or have no pitch, 0..1.
        scale: play a scale of each instrument through sfizz, and FluidSynth, as far as they are installed.

    Raises:
        InvalidRequestError: there is no library in the folder.
    """
    folder = Path(path)
    if not 0.0 <= out_of_tune_allowed <= 1.0:
        raise refusal("out_of_tune", f"{out_of_tune_allowed:g} is out of range; 0 to 1 is allowed")
    if not folder.is_dir():
        raise refusal("folder", f"there is no folder {folder}")
    if LibraryFolder(folder).find(MANIFEST) is None:
        raise refusal("folder", f"{folder} has no {MANIFEST}: it is no finished library")
    try:
        rows = list(read_rows(folder / MANIFEST))
        if not rows or len({row.file for row in rows}) < len(rows):
            raise ValueError("names a sample twice" if rows else "names no sample")
    except (OSError, ValueError) as error:
        fault = LibraryFault(MANIFEST, "unreadable", " ".join(str(error).split()))
        return VerifyReport(str(folder), 0, 0, 0, 0, 0, "", (), (fault,), ())
    trackers = find_trackers()
    checked = _check_samples(folder, rows, trackers, show_progress)
    unsound = {fault.file for each in checked for fault in each.faults if fault.kind in UNSOUND}
    try:
        tuning, tuning_faults = read_tuning(folder), list[LibraryFault]()
    except (OSError, ValueError) as error:
        tuning, tuning_faults = None, [LibraryFault(LibraryFolder(folder).tuning.name, "text", str(error))]
    instrument_faults, playable = _check_instruments(folder, rows, unsound, tuning)
    room = FONT_BYTES + 4 * sum(row.n_samples for row in rows)
    fonts = [font for sfz in playable if _is_font(font := sfz.with_suffix(".sf2"), room)]
    with_sfizz, with_fluidsynth = scale and has_sfizz(), scale and has_fluidsynth()
    played = [*(playable if with_sfizz else []), *(fonts if with_fluidsynth else [])]
    scale_faults, scales = _play_scales(folder, played, rows, show_progress)
    notices = [
        notice
        for notice, missing in ((NO_SFIZZ, not with_sfizz), (NO_FLUIDSYNTH, fonts and not with_fluidsynth))
        if scale and missing
    ]
    table = LibraryFolder(folder).find(TABLE)
    is_own_table = True if table is None else is_table_of(table, rows)
    notices += [NOT_COMPARED] if is_own_table is None else []
    faults = [
        *(_missing(name) for name in DOCUMENTS if not (folder / name).is_file()),
        *_tolerated((fault for each in checked for fault in each.faults), len(rows), out_of_tune_allowed),
        *([LibraryFault(TABLE, "text", OTHER_TABLE)] if is_own_table is False else []),
        *_codes_faults(folder, rows),
        *tuning_faults,
        *instrument_faults,
        *scale_faults,
    ]
    return VerifyReport(
        folder=str(folder),
        n_files=len(rows),
        n_in_tune=sum(each.in_tune for each in checked),
        n_unpitched=sum(each.unpitched for each in checked),
        n_looped=sum(row.loop_start is not None for row in rows),
        n_instruments=len({row.instrument for row in rows}),
        trackers=trackers.name,
        scales=tuple(scales),
        faults=tuple(faults),
        notices=tuple(notices),
    )


def _check_samples(
    folder: Path, rows: Sequence[ManifestRow], trackers: TrackerPair, show_progress: bool
) -> list[CheckedSample]:
    checked = []
    with (
        bar("verifying", len(rows), "file", shown=show_progress) as progress,
        ThreadPoolExecutor(default_threads()) as pool,
    ):
        for each in pool.map(lambda row: check_sample(folder, row, trackers), rows):
            checked.append(each)
            progress.update()
    return checked


def _check_instruments(
    folder: Path, rows: Sequence[ManifestRow], unsound: Set[str], tuning: KeyCents | None
) -> tuple[list[LibraryFault], list[Path]]:
    """Finds what is wrong with the instrument files, and which .sfz files can be played; no sampler is to be
    given `unsound` samples."""
    by_file = {row.file: row for row in rows}
    faults: list[LibraryFault] = []
    playable: list[Path] = []
    referred: set[str] = set()
    own: dict[str, list[ManifestRow]] = defaultdict(list)  # by the instruments' folders
    for row in rows:
        own[PurePosixPath(row.file).parent.name].append(row)
    for sfz in sorted(folder.glob("[!.]*.sfz")):  # hidden ones are a system's, as a Mac's ._Violin.sfz
        found, samples = check_sfz(folder, sfz, by_file, tuning)
        regions = [] if found else parse_sfz(sfz.read_text(encoding="utf-8"))
        slug = sfz.stem.partition("_")[0]
        if regions:
            wrong = key_faults(sfz, regions, own.get(slug, ()), tuning or EQUAL_TEMPERAMENT)
            found = [LibraryFault(sfz.name, "text", fault) for fault in wrong]
        faults += found
        referred |= samples
        if not found and samples <= by_file.keys() - unsound:
            playable.append(sfz)
        twin = sfz.with_suffix(".dspreset")
        if twin.is_file():
            amiss, others = check_dspreset(folder, twin)
            if not amiss and others != samples:
                amiss = [LibraryFault(twin.name, "reference", f"refers to other samples than {sfz.name}")]
            if not amiss and not found:
                amiss = [LibraryFault(twin.name, "text", fault) for fault in differences(regions, twin)]
            faults += amiss
        elif slug in own:
            faults.append(_missing(twin.name))
    chords = {twin.stem for twin in folder.glob("*_*.dspreset") if twin.stem.partition("_")[0] in own}
    for stem in sorted(own.keys() | chords):
        if not (folder / f"{stem}.sfz").is_file():
            faults.append(_missing(f"{stem}.sfz"))
    faults += [
        LibraryFault(row.file, "reference", "no .sfz file refers to it")
        for row in rows
        if row.file not in referred and tuning is None  # a scale may leave some out
    ]
    return faults, playable


def _is_font(path: Path, room: int) -> bool:
    """Tells whether there is a .sf2 file, in the folder itself and no larger than its samples make it."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= room


def _play_scales(
    folder: Path, playable: Sequence[Path], rows: Sequence[ManifestRow], show_progress: bool
) -> tuple[list[LibraryFault], list[ScaleResult]]:
    by_file = {row.file: row for row in rows}
    faults: list[LibraryFault] = []
    scales: list[ScaleResult] = []
    with bar("playing", len(playable), "scale", shown=show_progress) as progress:
        for sfz in playable:
            found, result = play_scale(folder, sfz, by_file)
            faults += found
            if result is not None:
                scales.append(result)
            progress.update()
    return faults, scales


def _tolerated(faults: Iterator[LibraryFault], n_files: int, share: float) -> list[LibraryFault]:
    """Leaves out the faults of pitch where they are few enough."""
    kept = list(faults)
    n_off = sum(fault.kind == "pitch" for fault in kept)
    return [fault for fault in kept if fault.kind != "pitch"] if n_off <= share * n_files else kept


def _codes_faults(folder: Path, rows: Sequence[ManifestRow]) -> Iterator[LibraryFault]:
    """Compares raw notes, where they are still there, with their hashes."""
    library = LibraryFolder(folder)
    store = NoteStore(library.codes)
    for row in rows:
        if not store.has(row.key):
            continue
        name = store.path(row.key).relative_to(folder).as_posix()
        raw = store.load(row.key) if library.find(name) is not None else None
        if raw is None or codes_hash(raw.codes) != row.codes_sha256:
            yield LibraryFault(name, "hash", f"the codes of {row.file} were altered")


def _missing(name: str) -> LibraryFault:
    return LibraryFault(name, "missing", "the file is missing")
