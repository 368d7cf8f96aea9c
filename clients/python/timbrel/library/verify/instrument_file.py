""".sfz and .dspreset files: what they refer to is there, and says what the manifest says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from timbrel.library.manifest import ManifestRow
from timbrel.library.verify.report import Fault

LOOP_MODES = ("no_loop", "one_shot", "loop_continuous", "loop_sustain")

Opcodes = dict[str, str]


def parse_sfz(text: str) -> list[Opcodes]:
    """The regions of a .sfz file, those of <global> and <group> included in each. One opcode a line.

    Raises:
        ValueError: a line is neither a header, a comment nor one opcode; the message names it.
    """
    inherited: dict[str, Opcodes] = {"<control>": {}, "<global>": {}, "<master>": {}, "<group>": {}}
    regions: list[Opcodes] = []
    current: Opcodes = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("//")[0].strip()
        if not line:
            continue
        if line == "<region>":
            current = {name: value for level in inherited.values() for name, value in level.items()}
            regions.append(current)
        elif line in inherited:
            current = inherited[line] = {}
        elif line.count("=") == 1 and not line.startswith("<"):
            name, _, value = line.partition("=")
            current[name] = value
        else:
            raise ValueError(f"line {number} is neither a header nor one opcode: {line[:60]!r}")
    return regions


def check_sfz(folder: Path, path: Path, rows: Mapping[str, ManifestRow]) -> tuple[list[Fault], set[str]]:
    """What is wrong with it, and the samples that it refers to."""
    name = path.relative_to(folder).as_posix()
    try:
        regions = parse_sfz(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [Fault(name, "text", str(error))], set()
    faults = [Fault(name, *fault) for region in regions for fault in _region_faults(folder, region, rows)]
    if not regions:
        faults.append(Fault(name, "text", "has no region"))
    return faults, {region.get("sample", "") for region in regions}


def check_dspreset(folder: Path, path: Path) -> tuple[list[Fault], set[str]]:
    """What is wrong with it, and the samples that it refers to."""
    name = path.relative_to(folder).as_posix()
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        return [Fault(name, "text", f"is no XML ({error})")], set()
    samples = {each.get("path", "") for each in root.iter("sample")}
    faults = [
        Fault(name, "reference", f"refers to {sample!r}, which is not there")
        for sample in sorted(samples)
        if not (folder / sample).is_file()
    ]
    return faults, samples


def _region_faults(
    folder: Path, region: Opcodes, rows: Mapping[str, ManifestRow]
) -> Iterator[tuple[str, str]]:
    sample = region.get("sample", "")
    if "\\" in sample or not sample or not (folder / sample).is_file():
        yield "reference", f"refers to {sample!r}, which is not there"
        return
    for opcode in ("amp_veltrack", "loop_mode", "pitch_keycenter", "lokey", "hikey", "lovel", "hivel"):
        if opcode not in region:
            yield "text", f"{sample}: {opcode} is not stated"
            return
    if region["loop_mode"] not in LOOP_MODES:
        yield "text", f"{sample}: loop_mode={region['loop_mode']} is none that samplers know"
    if not all(_is_ordered(region, low, high) for low, high in (("lokey", "hikey"), ("lovel", "hivel"))):
        yield "text", f"{sample}: its keys or velocities are not a range of 0 to 127"
    if (row := rows.get(sample)) is not None:
        yield from _contradictions(region, row)


def _is_ordered(region: Opcodes, low: str, high: str) -> bool:
    try:
        return 0 <= int(region[low]) <= int(region[high]) <= 127
    except ValueError:
        return False


def _contradictions(region: Opcodes, row: ManifestRow) -> Iterator[tuple[str, str]]:
    """Opcodes against the manifest."""
    expected = {
        "pitch_keycenter": str(row.pitch),
        "tune": str(row.tune_cents),
        "loop_mode": row.loop_mode,
        "loop_start": None if row.loop_start is None else str(row.loop_start),
        "loop_end": None if row.loop_end is None else str(row.loop_end),
    }
    for opcode, value in expected.items():
        found = region.get(opcode)
        if found != value and not (opcode == "tune" and found is None and row.tune_cents == 0):
            kind = "loop" if opcode.startswith("loop") else "text"
            yield kind, f"{row.file}: {opcode}={found}, the manifest says {value}"
