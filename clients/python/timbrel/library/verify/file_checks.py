"""The files of a library, one by one: samples against the manifest, instrument files against both."""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from timbrel.library.finish.loop import JOINT_DB, STEP_DB, Loop, joint_excess_db, level_step_db
from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.finish.sample_files import read_chunks, read_sampler_chunk
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.formats import format_of
from timbrel.library.plan.ranges import HIGHEST_INTERVAL
from timbrel.library.render.level import Audio, decibels
from timbrel.library.render.pitch import TrackerPair, cents_off, is_in_tune, strongest_partial
from timbrel.library.verify.report import LibraryFault
from timbrel.scala import EQUAL_TEMPERAMENT, MAX_CENTS, N_KEYS, KeyCents
from timbrel_bundle.audio import read_audio
from timbrel_bundle.errors import UNPRINTABLE, AudioError
from timbrel_bundle.files import parse_json, sha256_file

SILENT_DB = -100.0
"""A sample whose peak is below this is taken for silence: soft layers peak at -70, 24 bits end at -138."""

CLICK_TOLERANCE_DB = 0.5
"""Allowed for the joint measured in the file, which is rounded to 24 bits."""

LARGE_SAMPLES = 2**22
"""Longer samples are looked at one at a time: to measure the longest allowed takes almost 1 GB."""

_ONE_LARGE = threading.Lock()

LOOP_MODES = ("no_loop", "one_shot", "loop_continuous", "loop_sustain")

Opcodes = dict[str, str]

OPCODE = re.compile(
    r"amp_(veltrack|velcurve_([1-9]\d?|1[01]\d|12[0-7]))|ampeg_(attack|release)|(hi|lo)(key|vel)|"
    r"loop_(mode|start|end)|offset|pitch_keycenter|rt_decay|sample|seq_(length|position)|transpose|trigger|"
    r"tune|volume",
    re.ASCII,
)
"""What timbrel writes. An instrument with others is not given to a sampler here: some lead out
of the folder, and a filter of number 999999999 takes all memory."""

MAX_STEP_DB = 1.0
"""So much louder may a velocity be than the one below it."""

REMEDY = "the command that made the library makes it again"

MAX_TEXT_BYTES = 2**26


@dataclass(frozen=True)
class CheckedSample:
    """The findings about one sample file."""

    faults: tuple[LibraryFault, ...]
    in_tune: bool = False
    unpitched: bool = False


def check_sample(folder: Path, row: ManifestRow, trackers: TrackerPair) -> CheckedSample:
    """Opens, measures and compares one sample file."""
    path = LibraryFolder(folder).find(row.file)
    if path is None:
        lost = f"there is no such file in the folder; {REMEDY}"
        return CheckedSample((LibraryFault(row.file, "missing", lost),))
    with _ONE_LARGE if row.n_samples > LARGE_SAMPLES else contextlib.nullcontext():
        return _check_found(path, row, trackers)


def _check_found(path: Path, row: ManifestRow, trackers: TrackerPair) -> CheckedSample:
    faults = []
    if sha256_file(path) != row.sha256:
        altered = f"the file was altered: its SHA-256 is not the manifest's; once deleted, {REMEDY}"
        faults.append(LibraryFault(row.file, "hash", altered))
    try:
        audio, sample_rate = read_audio(path, max(row.n_samples, 1))
    except AudioError as error:
        return CheckedSample(
            (*faults, LibraryFault(row.file, "unreadable", str(error).removeprefix(f"{path}: ")))
        )
    faults += [LibraryFault(row.file, *fault) for fault in _sound_faults(audio, sample_rate, row)]
    faults += [LibraryFault(row.file, "loop", fault) for fault in _loop_faults(path, audio, sample_rate, row)]
    heard = trackers.measure(audio, sample_rate)
    unpitched = heard == (None, None)
    in_tune = is_in_tune(row.pitch, *heard, tune=row.tune_cents)
    if not in_tune:
        partial = strongest_partial(row.pitch, heard, audio, sample_rate)
        in_tune = is_in_tune(row.pitch, partial, None, tune=row.tune_cents)
    if not in_tune and not any(fault.kind == "silence" for fault in faults):
        faults.append(LibraryFault(row.file, "pitch", _describe_pitch(row, heard)))
    return CheckedSample(tuple(faults), in_tune, unpitched)


def _describe_pitch(row: ManifestRow, heard: tuple[float | None, float | None]) -> str:
    cents = [each + row.tune_cents for tone in heard if (each := cents_off(row.pitch, tone)) is not None]
    if not cents:
        return f"no pitch is heard in it, {row.pitch} is expected"
    readings = " and ".join(f"{each:+.0f}" for each in cents)
    return f"sounds {readings} cents from pitch {row.pitch}, by {len(cents)} of two trackers"


def _sound_faults(audio: Audio, sample_rate: int, row: ManifestRow) -> Iterator[tuple[str, str]]:
    peak = float(np.abs(audio).max())
    if sample_rate != row.sample_rate:
        yield "format", f"has {sample_rate} Hz, the manifest says {row.sample_rate}"
    if len(audio) != row.n_samples:
        yield "format", f"has {len(audio)} samples, the manifest says {row.n_samples}"
    # Samples from here up are as large as the format can hold: libraries are written 1 dB below.
    full_scale = 1.0 - 2.0 ** (2 - format_of(row.file).bits)
    if peak >= full_scale:
        n_full = int(np.count_nonzero(np.abs(audio) >= full_scale))
        yield "clipping", f"is clipped: {n_full} samples are at full scale"
    if decibels(peak) < SILENT_DB:
        yield "silence", f"is silent: its peak is {decibels(peak):.0f} dB"


def _loop_faults(path: Path, audio: Audio, sample_rate: int, row: ManifestRow) -> Iterator[str]:
    loop = row.loop
    if format_of(path).has_sampler_chunks:
        yield from _chunk_faults(path, loop)
    if loop is None:
        return
    if not 0 <= loop.start < loop.end < len(audio):
        yield f"its loop {loop.start}..{loop.end} lies outside of its {len(audio)} samples"
        return
    joint, step = joint_excess_db(audio, loop), level_step_db(audio, loop, sample_rate)
    if joint > JOINT_DB + CLICK_TOLERANCE_DB:
        yield f"its loop clicks: the joint is {joint:.1f} dB sharper than anything within the loop"
    if abs(step) > STEP_DB + CLICK_TOLERANCE_DB:
        yield f"its loop jumps in level by {step:.1f} dB"


def _chunk_faults(path: Path, loop: Loop | None) -> Iterator[str]:
    try:
        chunk = read_sampler_chunk(read_chunks(path).get("smpl", b""))
    except ValueError as error:
        yield str(error)
        return
    if chunk.loops != (() if loop is None else (loop,)):
        stated = None if loop is None else tuple(loop)
        yield f"its smpl chunk has the loops {list(chunk.loops)}, the manifest says {stated}"


def parse_sfz(text: str) -> list[Opcodes]:
    """Reads the regions of a .sfz file, each with what <global> and <group> say. There is one opcode a line.
    Raises ValueError: a line is neither a header, a comment nor one opcode; the message names it."""
    inherited: dict[str, Opcodes] = {"<control>": {}, "<global>": {}, "<master>": {}, "<group>": {}}
    regions: list[Opcodes] = []
    current: Opcodes = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.partition("//")[0].strip()
        if not line:
            continue
        if UNPRINTABLE.search(line.replace("\t", " ")):
            raise ValueError(f"line {number} has characters that cannot be printed")
        if line == "<region>":
            current = {name: value for level in inherited.values() for name, value in level.items()}
            regions.append(current)
        elif line in inherited:
            current = inherited[line] = {}
        elif line.count("=") == 1 and line[0] not in "<#":
            name, _, value = line.partition("=")
            if not OPCODE.fullmatch(name):
                raise ValueError(f"line {number} has the opcode {name[:40]!r}, which timbrel does not write")
            current[name] = value
        else:
            raise ValueError(f"line {number} is neither a header nor one opcode: {line[:60]!r}")
    return regions


def read_tuning(folder: Path) -> KeyCents | None:
    """Reads how a library's instruments are tuned; None: in equal temperament. Raises OSError, ValueError:
    the file cannot be read, or holds something else."""
    path = LibraryFolder(folder).tuning
    if not path.exists():
        return None
    cents = parse_json(_read_text(folder, path))
    if not isinstance(cents, list) or len(cents) != N_KEYS or not all(map(_is_cents, cents)):
        raise ValueError(f"is no list of {N_KEYS} numbers of cents")
    return tuple(cents)


def _is_cents(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and abs(value) <= MAX_CENTS * N_KEYS)


def check_sfz(
    folder: Path, path: Path, rows: Mapping[str, ManifestRow], tuning: KeyCents | None = None
) -> tuple[list[LibraryFault], set[str]]:
    """Finds what is wrong with a .sfz file, and the samples that it refers to."""
    intervals = range(HIGHEST_INTERVAL + 1) if is_chord(path) else range(1)
    name = path.relative_to(folder).as_posix()
    try:
        regions = parse_sfz(_read_text(folder, path))
    except (OSError, ValueError) as error:
        return [LibraryFault(name, "text", str(error))], set()
    faults = [
        LibraryFault(name, *fault)
        for region in regions
        for fault in _region_faults(folder, region, rows, tuning or EQUAL_TEMPERAMENT, intervals)
    ]
    if not any(is_struck(region) for region in regions):
        faults.append(LibraryFault(name, "text", "has no region that sounds when a key goes down"))
    return faults, {region.get("sample", "") for region in regions}


def _read_text(folder: Path, path: Path) -> str:
    """The text of an instrument file. Raises OSError or ValueError where the folder has none to be read."""
    found = LibraryFolder(folder).find(path.relative_to(folder).as_posix())
    if found is None or found.stat().st_size > MAX_TEXT_BYTES:
        raise ValueError(f"is no file of up to {MAX_TEXT_BYTES} bytes within the folder")
    return found.read_text(encoding="utf-8")


def check_dspreset(folder: Path, path: Path) -> tuple[list[LibraryFault], set[str]]:
    """Finds what is wrong with a .dspreset file, and the samples that it refers to."""
    name = path.relative_to(folder).as_posix()
    try:
        root = ElementTree.fromstring(_read_text(folder, path))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        return [LibraryFault(name, "text", f"is no XML ({error})")], set()
    samples = {each.get("path", "") for each in root.iter("sample")}
    faults = [
        LibraryFault(name, "reference", f"refers to {sample!r}, which is not there")
        for sample in sorted(samples)
        if LibraryFolder(folder).find(sample) is None
    ]
    return faults, samples


def _region_faults(
    folder: Path, region: Opcodes, rows: Mapping[str, ManifestRow], tuning: KeyCents, intervals: range
) -> Iterator[tuple[str, str]]:
    sample = region.get("sample", "")
    if "\\" in sample or not sample or LibraryFolder(folder).find(sample) is None:
        yield "reference", f"refers to {sample!r}, which is not there"
        return
    for opcode in ("amp_veltrack", "loop_mode", "pitch_keycenter", "lokey", "hikey", "lovel", "hivel"):
        if opcode not in region:
            yield "text", f"{sample}: {opcode} is not stated"
            return
    if region["loop_mode"] not in LOOP_MODES:
        yield "text", f"{sample}: loop_mode={region['loop_mode']} is none that samplers know"
    if not is_struck(region) and region["trigger"] != "release":
        yield "text", f"{sample}: trigger={region['trigger']} is none that timbrel writes"
    if not all(_is_ordered(region, low, high) for low, high in (("lokey", "hikey"), ("lovel", "hivel"))):
        yield "text", f"{sample}: its keys or velocities are not a range of 0 to 127"
    else:
        yield from (("level", f"{sample}: {fault}") for fault in _level_faults(region))
    if sample not in rows:
        yield "reference", f"refers to {sample!r}, which the manifest does not name"
    else:
        yield from _contradictions(region, rows[sample])
        yield from _tuning_faults(region, rows[sample], tuning, intervals)


def _is_ordered(region: Opcodes, low: str, high: str) -> bool:
    try:
        return 0 <= int(region[low]) <= int(region[high]) <= 127
    except ValueError:
        return False


def layer_of(region: Opcodes) -> tuple[int, int]:
    """Gives the lowest and the highest velocity of a region."""
    return int(region["lovel"]), int(region["hivel"])


def _level_faults(region: Opcodes) -> Iterator[str]:
    """Finds where a region's level over velocity falls, or jumps."""
    low, high = layer_of(region)
    try:
        float(region["volume"])
        gains = [float(region[f"amp_velcurve_{velocity}"]) for velocity in range(max(1, low), high + 1)]
        steps = [20.0 * math.log10(above / below) for below, above in pairwise(gains)]
    except (KeyError, ValueError, ZeroDivisionError):
        yield "amp_velcurve_N does not state a gain for each of its velocities, or volume is none"
        return
    if not all(0.0 < step <= MAX_STEP_DB for step in steps) or not all(0.0 < gain <= 1.0 for gain in gains):
        yield f"amp_velcurve_N falls, or rises by more than {MAX_STEP_DB:g} dB, from a velocity to the next"


def is_chord(path: Path) -> bool:
    """Tells by its name whether an instrument file plays chords: no other has an underscore."""
    return "_" in path.stem


def is_struck(region: Opcodes) -> bool:
    """Tells whether a region sounds when a key goes down."""
    return region.get("trigger", "attack") == "attack"


def region_cents(region: Opcodes) -> int:
    """Gives what a region's keys sound above its sample, played at its own pitch."""
    return 100 * int(region.get("transpose", "0")) + int(region.get("tune", "0"))


def _tuning_faults(
    region: Opcodes, row: ManifestRow, tuning: KeyCents, intervals: range
) -> Iterator[tuple[str, str]]:
    """Finds keys that a region plays at another pitch than the manifest and the library's tuning say."""
    try:
        cents = region_cents(region) - row.tune_cents
        keys = range(int(region["lokey"]), int(region["hikey"]) + 1)
    except ValueError:
        yield "text", f"{row.file}: its keys, transpose or tune are no whole numbers"
        return
    for key in keys:
        tones = [(each, tuning[key + each]) for each in intervals if key + each < N_KEYS]
        if not any(own is not None and abs(100 * each + own - cents) <= 1.0 for each, own in tones):
            yield "text", f"{row.file}: tune={region.get('tune')} at key {key}, the manifest says another"
            return


def _contradictions(region: Opcodes, row: ManifestRow) -> Iterator[tuple[str, str]]:
    """Compares opcodes with the manifest."""
    is_release = region.get("trigger") == "release"
    loop = None if is_release else row.loop
    expected = {
        "pitch_keycenter": str(row.pitch),
        "loop_mode": "one_shot" if is_release else row.loop_mode,
        "loop_start": None if loop is None else str(loop.start),
        "loop_end": None if loop is None else str(loop.end),
        "offset": str(row.release_start) if is_release else None,
    }
    for opcode, value in expected.items():
        found = region.get(opcode)
        if found != value:
            kind = "loop" if opcode.startswith("loop") else "text"
            yield kind, f"{row.file}: {opcode}={found}, the manifest says {value}"
