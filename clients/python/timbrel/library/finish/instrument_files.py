"""Instrument files, which tell a sampler what each sample is for: .sfz and .dspreset.

Sforzando, sfizz, ARIA, LinuxSampler and others play .sfz, text with one opcode a line; Decent Sampler plays
.dspreset, XML. Both are told how loud each velocity plays (`dynamics`): .sfz by a curve a layer, .dspreset,
which has none, by slices of layers that play at one level each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from xml.etree import ElementTree

from timbrel.errors import refusal
from timbrel.library.finish.dynamics import Dynamics, Zone
from timbrel.scala import N_KEYS, KeyCents

REACH = 12
"""Semitones that the outermost pitches are stretched beyond the range that was rendered."""

RELEASE_ATTACK_SECONDS = 0.02
RELEASE_FADE_SECONDS = 0.2
"""A release sample comes in while the sound of the held key goes out. Samplers fade exponentially, by 60 to
100 dB in this time; by these two numbers, sounds of unrelated phases dip by some 2 dB in between."""

FADE_DB = 84.0
"""What a sampler fades by in the time that it is given: sfizz 78 dB, ARIA's players 90."""

DECENT_SAMPLER, DECENT_SAMPLER_DECAY, DECENT_SAMPLER_FLAC = "1.0.0", "1.15.2", "1.19.0"
"""The versions of Decent Sampler that play a preset, one whose releases are softer the longer a key was held,
and one of .flac files. An older one says so where the preset names it, and plays too loud or nothing."""


@dataclass(frozen=True)
class Release:
    """The end of a sample, after its key is let go, where that is more than a fade."""

    start: int
    """Sample at which the key was let go."""

    gain_db: float = 0.0
    """What a key let go at once is louder by, where held ones die away."""

    decay: float = 0.0
    """dB that the held sound loses a second."""


@dataclass(frozen=True)
class Region:
    """One sample, and the keys and velocities that play it."""

    file: str
    """Path within the library, with forward slashes."""

    pitch: int
    """MIDI note number that it is recorded at."""

    keys: tuple[int, int] = (0, 127)
    """Lowest and highest key that it is for."""

    velocities: Zone = (1, 127)
    round_robin: int = 1
    """Number of the take, from 1."""

    tune: int = 0
    """Cents to add when it is played, -99..99, so that it sounds at that pitch."""

    loop: tuple[int, int] | None = None
    """First and last sample of the loop, both played."""

    volume: float = 0.0
    """dB that it is turned up by at the top of its layer."""

    transpose: int = 0
    """Semitones that a key sounds above itself: a chord's tones do, and keys of another tuning."""

    release: Release | None = None

    @property
    def loop_mode(self) -> str:
        return "no_loop" if self.loop is None else "loop_continuous"


@dataclass(frozen=True)
class SamplerInstrument:
    """An instrument as an instrument file describes it."""

    name: str
    slug: str
    comment: str
    """One line."""

    regions: Sequence[Region]
    round_robins: int
    dynamics: Dynamics
    release_seconds: float
    """Time of a fade by 60 dB after a key is let go."""

    @property
    def released(self) -> list[tuple[Region, Release]]:
        """The regions that have a release sample."""
        return [(region, region.release) for region in self.regions if region.release]

    @property
    def fade_seconds(self) -> float:
        """Gives the time that the held sound takes to go: little where release samples follow."""
        return RELEASE_FADE_SECONDS if self.released else self.release_seconds * FADE_DB / 60.0

    def own_fade_seconds(self, region: Region) -> float | None:
        """Gives that of a sample whose release sample is missing where others have theirs; None: as above."""
        return self.release_seconds * FADE_DB / 60.0 if self.released and not region.release else None

    def tuned(self, cents: KeyCents) -> SamplerInstrument:
        """Makes the instrument whose keys are tuned so, each played by the sample nearest to its pitch."""
        regions = []
        for region in self.regions:
            low, high = region.keys
            keys = [
                (key, round(value))
                for key, value in enumerate(cents)
                if value is not None and low <= key + round(value / 100.0) <= high
            ]
            # Neighbours that are tuned alike stay one region.
            for (_, value), run in groupby(enumerate(keys), lambda each: (each[1][0] - each[0], each[1][1])):
                own = [key for _, (key, _) in run]
                semitones = round((region.tune + value) / 100.0) if value else 0
                regions.append(
                    replace(
                        region,
                        keys=(own[0], own[-1]),
                        transpose=region.transpose + semitones,
                        tune=region.tune + value - 100 * semitones,
                    )
                )
        return replace(self, regions=regions)

    def chord(self, name: str, intervals: Sequence[int]) -> SamplerInstrument:
        """Makes the instrument whose keys each play a chord, `intervals` of semitones above the key: its
        samples, several at once. Keys of which a tone would be missing are silent."""
        softer = 10.0 * math.log10(len(intervals))
        sounding = {key for region in self.regions for key in range(region.keys[0], region.keys[1] + 1)}
        whole = chord_keys(sounding, intervals)
        tones = [
            replace(
                region,
                keys=keys,
                transpose=region.transpose + interval,
                volume=region.volume - softer,
            )
            for interval in intervals
            for region in self.regions
            for keys in _runs(key for key in whole if region.keys[0] <= key + interval <= region.keys[1])
        ]
        return replace(self, name=f"{self.name} {name}", slug=f"{self.slug}_{name}", regions=tones)


def key_zones(pitches: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Gives each of some rising pitches a lowest and a highest key, without gaps; the outermost reach an
    octave further."""
    cuts = [(one + other) // 2 for one, other in pairwise(pitches)]
    lows = [max(0, pitches[0] - REACH), *(cut + 1 for cut in cuts)]
    highs = [*cuts, min(127, pitches[-1] + REACH)]
    return dict(zip(pitches, zip(lows, highs, strict=True), strict=True))


def sounding_keys(cents: KeyCents, pitches: Sequence[int]) -> list[int]:
    """Gives the keys that, tuned so, sound in reach of these rising pitches."""
    zones = list(key_zones(pitches).values())
    lowest, highest = zones[0][0], zones[-1][1]
    return [
        key
        for key, value in enumerate(cents)
        if value is not None and lowest <= key + round(value / 100.0) <= highest
    ]


def chord_keys(sounding: Collection[int], intervals: Sequence[int]) -> list[int]:
    """Gives the keys whose chord, `intervals` of semitones above them, has all of its tones among those that
    sound."""
    tones = frozenset(sounding)
    return [key for key in range(N_KEYS) if all(key + interval in tones for interval in intervals)]


def check_keys(cents: KeyCents, pitches: Sequence[int], chords: Mapping[str, Sequence[int]]) -> None:
    """Raises InvalidRequestError where no key that is tuned so sounds in reach of these rising pitches, or
    none has all tones of a chord."""
    sounding = sounding_keys(cents, pitches)
    if not sounding:
        raise refusal("tuning", "no key of it sounds: all lie more than an octave from the pitches rendered")
    for name, intervals in chords.items():
        if not chord_keys(sounding, intervals):
            raise refusal("chords", f"no key has all tones of {name}; leave it out, or render more pitches")


def _runs(keys: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Gives the lowest and the highest of each stretch of neighbouring keys, which rise."""
    for _, run in groupby(enumerate(keys), lambda each: each[1] - each[0]):
        own = [key for _, key in run]
        yield own[0], own[-1]


def sfz_text(instrument: SamplerInstrument) -> str:
    """Writes a whole .sfz file. Every region states its loop mode, its tuning and its zones."""
    return "\n".join(_sfz_lines(instrument)) + "\n"


def _sfz_lines(instrument: SamplerInstrument) -> Iterator[str]:
    yield f"// {instrument.name}"
    yield f"// {instrument.comment}"
    yield ""
    yield "<global>"
    yield "amp_veltrack=100"
    yield f"ampeg_release={instrument.fade_seconds:.3f}"
    if instrument.round_robins > 1:
        yield f"seq_length={instrument.round_robins}"
    for zone in instrument.dynamics.zones.values():
        curve = [f"lovel={zone[0]}", f"hivel={zone[1]}"]
        for velocity, fall in enumerate(instrument.dynamics.fall_db(zone), start=zone[0]):
            curve.append(f"amp_velcurve_{velocity}={10.0 ** (fall / 20.0):.6f}")
        yield from ("", "<group>", *curve)
        for region in instrument.regions:
            if region.velocities == zone:
                yield from ("", "<region>", *_region_lines(region, instrument))
        released = [each for each in instrument.released if each[0].velocities == zone]
        if released:
            yield from ("", "<group>", "trigger=release", *curve)
            yield f"ampeg_attack={RELEASE_ATTACK_SECONDS:.3f}"
        for region, release in released:
            yield from ("", "<region>", *_release_lines(region, release, instrument.round_robins))


def _common_lines(region: Region, round_robins: int) -> Iterator[str]:
    yield f"sample={region.file}"
    yield f"pitch_keycenter={region.pitch}"
    if region.transpose:
        yield f"transpose={region.transpose}"
    yield f"lokey={region.keys[0]}"
    yield f"hikey={region.keys[1]}"
    yield f"tune={region.tune}"
    if round_robins > 1:
        yield f"seq_position={region.round_robin}"


def _region_lines(region: Region, instrument: SamplerInstrument) -> Iterator[str]:
    yield from _common_lines(region, instrument.round_robins)
    yield f"volume={region.volume:.2f}"
    if (fade := instrument.own_fade_seconds(region)) is not None:
        yield f"ampeg_release={fade:.3f}"
    yield f"loop_mode={region.loop_mode}"
    if region.loop is not None:
        yield f"loop_start={region.loop[0]}"
        yield f"loop_end={region.loop[1]}"


def _release_lines(region: Region, release: Release, round_robins: int) -> Iterator[str]:
    yield from _common_lines(region, round_robins)
    yield f"volume={region.volume + release.gain_db:.2f}"
    yield "loop_mode=one_shot"
    yield f"offset={release.start}"
    yield f"rt_decay={release.decay:.2f}"


def dspreset_text(instrument: SamplerInstrument) -> str:
    """Writes a whole .dspreset file: one group, whose samples all state their zones, tuning and loop.

    Where there are release samples, they are a second group.
    """
    root = ElementTree.Element("DecentSampler", minVersion=_least_version(instrument))
    root.append(ElementTree.Comment(re.sub("-{2,}", "-", f" {instrument.name}. {instrument.comment} ")))
    groups = ElementTree.SubElement(root, "groups")
    group = _group(groups, instrument, attack=0.0, release=instrument.fade_seconds)
    for region in instrument.regions:
        fade = instrument.own_fade_seconds(region)
        own = {} if fade is None else {"release": f"{fade:.3f}"}
        _add_slices(group, instrument, region, region.volume, {**_loop_attributes(region), **own})
    if instrument.released:
        group = _group(groups, instrument, attack=RELEASE_ATTACK_SECONDS, release=instrument.release_seconds)
        group.set("trigger", "release")
        for region, release in instrument.released:
            gain = region.volume + release.gain_db
            _add_slices(group, instrument, region, gain, _release_attributes(release))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _least_version(instrument: SamplerInstrument) -> str:
    if any(region.file.endswith(".flac") for region in instrument.regions):
        return DECENT_SAMPLER_FLAC
    has_decay = any(release.decay for _, release in instrument.released)
    return DECENT_SAMPLER_DECAY if has_decay else DECENT_SAMPLER


def _group(
    groups: ElementTree.Element, instrument: SamplerInstrument, attack: float, release: float
) -> ElementTree.Element:
    group = ElementTree.SubElement(
        groups,
        "group",
        ampVelTrack="0",
        attack=f"{attack:g}",
        decay="0",
        sustain="1",
        release=f"{release:.3f}",
    )
    if instrument.round_robins > 1:
        group.set("seqMode", "round_robin")
        group.set("seqLength", str(instrument.round_robins))
    return group


def _add_slices(
    group: ElementTree.Element,
    instrument: SamplerInstrument,
    region: Region,
    volume: float,
    more: dict[str, str],
) -> None:
    """Adds a sample once for each range of velocities that plays it at one level."""
    root = min(max(region.pitch - region.transpose, 0), 127)
    semitones = region.tune / 100 + root - region.pitch + region.transpose
    attributes = {
        "path": region.file,
        "rootNote": str(root),
        "loNote": str(region.keys[0]),
        "hiNote": str(region.keys[1]),
        "tuning": f"{semitones:.2f}",
        **more,
    }
    if instrument.round_robins > 1:
        attributes["seqPosition"] = str(region.round_robin)
    for (low, high), fall in instrument.dynamics.slices[region.velocities]:
        level = {"loVel": str(low), "hiVel": str(high), "volume": f"{volume + fall:.2f}dB"}
        ElementTree.SubElement(group, "sample", {**attributes, **level})


def _loop_attributes(region: Region) -> dict[str, str]:
    if region.loop is None:
        return {"loopEnabled": "false"}
    return {"loopEnabled": "true", "loopStart": str(region.loop[0]), "loopEnd": str(region.loop[1])}


def _release_attributes(release: Release) -> dict[str, str]:
    decay = {"releaseTriggerDecay": f"{release.decay:.2f}dB"} if release.decay else {}
    return {"loopEnabled": "false", "start": str(release.start), **decay}
