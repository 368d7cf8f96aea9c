"""The check that each key of an instrument plays what the manifest says, in .dspreset as in .sfz."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from timbrel.errors import InvalidRequestError
from timbrel.library.finish.dynamics import VELOCITIES, velocity_zones
from timbrel.library.finish.instrument_files import chord_keys, sounding_keys
from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.plan.ranges import MAX_TONES, parse_chords
from timbrel.library.render.level import decibels
from timbrel.library.verify.file_checks import Opcodes, is_struck
from timbrel.progress import counted
from timbrel.scala import N_KEYS, KeyCents

Attributes = Mapping[str, str]

SLACKS = {"cents": 1.0, "level_db": 0.6, "decay": 0.02}
"""So far may a .dspreset file, whose levels are steps, be from the .sfz file, where they are a curve."""


class Zone(NamedTuple):
    """The keys that play a sample, and whether as they go down or up."""

    trigger: str
    sample: str
    low: int
    high: int


class Sounding(NamedTuple):
    """The sound of a zone."""

    cents: float
    """Of its lowest key, above the sample as it is."""

    level_db: float
    loop: tuple[int, int] | None
    start: int
    """First sample that is played."""

    decay: float
    """dB that a release is softer by for each second that its key was held."""

    take: int
    """Its place among the round robins, from 1."""


def key_faults(
    path: Path, regions: Iterable[Opcodes], rows: Sequence[ManifestRow], tuning: KeyCents
) -> Iterator[str]:
    """Finds keys of a .sfz file for which other samples sound than its instrument's rows of the manifest say:
    the first key of each layer and take. `check_sfz` found nothing wrong with the regions."""
    chord = path.stem.partition("_")[2]
    try:
        intervals = parse_chords(chord).get(chord) if chord else (0,)
    except InvalidRequestError:
        intervals = None
    if not rows or intervals is None:
        return  # not of timbrel's making
    own = {row.file: row for row in rows}
    layers = velocity_zones(sorted({row.velocity for row in rows}))
    takes = {row.round_robin for row in rows}
    whole = chord_keys(sounding_keys(tuning, sorted({row.pitch for row in rows})), intervals)
    wanted = [len(intervals) if key in whole else 0 for key in range(N_KEYS)]  # samples for each key
    found = {(velocity, take): Counter[int]() for velocity in layers for take in takes}
    for region in regions:
        if (row := own.get(region["sample"])) is None:
            yield f"{region['sample']} is of another instrument"
            return
        expected = {
            "lovel": str(layers[row.velocity][0]),
            "hivel": str(layers[row.velocity][1]),
            "seq_position": str(row.round_robin) if len(takes) > 1 else None,
            "seq_length": str(len(takes)) if len(takes) > 1 else None,
        }
        for opcode, value in expected.items():
            if region.get(opcode) != value:
                yield f"{row.file}: {opcode}={region.get(opcode)}, by the manifest it is {value}"
                return
        if is_struck(region):
            keys = range(int(region["lokey"]), int(region["hikey"]) + 1)
            found[row.velocity, row.round_robin].update(keys)
    for (velocity, take), sounding in sorted(found.items()):
        wrong = [key for key in range(N_KEYS) if sounding[key] != wanted[key]]
        if wrong:
            yield (
                f"at key {wrong[0]}, {counted(sounding[wrong[0]], 'sample')} of velocity {velocity}, take "
                f"{take}, would sound; by the manifest it is {wanted[wrong[0]]}"
            )


def differences(regions: Iterable[Opcodes], path: Path) -> Iterator[str]:
    """Finds what a .dspreset file, which is XML, plays otherwise than these regions of its .sfz file, with
    which nothing is wrong: the first of it, by sample, keys and velocity."""
    wanted: dict[Zone, list[Opcodes]] = defaultdict(list)
    for each in regions:
        trigger = each.get("trigger", "attack")
        wanted[Zone(trigger, each["sample"], int(each["lokey"]), int(each["hikey"]))].append(each)
    found: dict[Zone, list[Attributes]] = defaultdict(list)
    try:
        for own in _samples_of(ElementTree.fromstring(path.read_text(encoding="utf-8"))):
            trigger = own.get("trigger", "attack")
            found[Zone(trigger, own["path"], int(own["loNote"]), int(own["hiNote"]))].append(own)
        for zone in sorted(wanted.keys() | found.keys()):
            if fault := _difference(wanted.get(zone, []), found.get(zone, [])):
                yield f"{zone.sample} at keys {zone.low} to {zone.high}: {fault}"
                return
    except (KeyError, ValueError) as error:
        yield f"leaves out, or has wrong: {str(error)[:120]}"


def _samples_of(root: ElementTree.Element) -> Iterator[Attributes]:
    """Yields the attributes of each sample of a .dspreset file, those of its group included."""
    if root.tag != "DecentSampler":
        raise ValueError("DecentSampler")
    for group in root.iter("group"):
        if float(group.attrib["ampVelTrack"]) != 0.0:
            raise ValueError("ampVelTrack")
        for each in group.iter("sample"):
            yield ChainMap(each.attrib, group.attrib)


def _difference(wanted: Sequence[Opcodes], found: Sequence[Attributes]) -> str | None:
    """Compares what sounds of one zone at each velocity: of a chord that may be a sample several times."""
    if len(wanted) > MAX_TONES or len(found) > len(wanted) * len(VELOCITIES):
        return f"plays {len(found)} times"
    due, real = defaultdict[int, list[Sounding]](list), defaultdict[int, list[Sounding]](list)
    for region in wanted:
        for velocity in range(int(region["lovel"]), int(region["hivel"]) + 1):
            due[velocity].append(_sounding_of_region(region, velocity))
    for own in found:
        sounding = _sounding_of_sample(own)
        for velocity in range(max(0, int(own["loVel"])), min(127, int(own["hiVel"])) + 1):
            real[velocity].append(sounding)
    for velocity in sorted(due.keys() | real.keys()):
        one, other = (sorted(each[velocity], key=lambda tone: tone.cents) for each in (due, real))
        if len(one) != len(other):
            return f"velocity {velocity} plays it {len(other)} times, in the .sfz file {len(one)}"
        for (wish, fact), name in product(zip(one, other, strict=True), Sounding._fields):
            value, slack = getattr(wish, name), SLACKS.get(name)
            is_same = (
                getattr(fact, name) == value if slack is None else abs(getattr(fact, name) - value) <= slack
            )
            if not is_same:
                what = name.replace("_", " ")
                return f"velocity {velocity} has {what} {getattr(fact, name)}, in the .sfz file {value}"
    return None


def _sounding_of_region(region: Opcodes, velocity: int) -> Sounding:
    semitones = int(region["lokey"]) - int(region["pitch_keycenter"]) + int(region.get("transpose", "0"))
    return Sounding(
        cents=100.0 * semitones + float(region.get("tune", "0")),
        level_db=float(region["volume"]) + decibels(float(region[f"amp_velcurve_{velocity}"])),
        loop=(int(region["loop_start"]), int(region["loop_end"])) if "loop_start" in region else None,
        start=int(region.get("offset", "0")),
        decay=float(region.get("rt_decay", "0")),
        take=int(region.get("seq_position", "1")),
    )


def _sounding_of_sample(own: Attributes) -> Sounding:
    """Raises KeyError, ValueError: something that timbrel writes is not there, or something else."""
    is_looped = own["loopEnabled"] == "true"
    return Sounding(
        cents=100.0 * (int(own["loNote"]) - int(own["rootNote"]) + float(own["tuning"])),
        level_db=_decibels_of(own["volume"]),
        loop=(int(own["loopStart"]), int(own["loopEnd"])) if is_looped else None,
        start=int(own.get("start", "0")),
        decay=_decibels_of(own.get("releaseTriggerDecay", "0dB")),
        take=int(own.get("seqPosition", "1")),
    )


def _decibels_of(text: str) -> float:
    if not text.endswith("dB"):
        raise ValueError(f"{text[:40]!r} in dB")
    return float(text.removesuffix("dB"))
