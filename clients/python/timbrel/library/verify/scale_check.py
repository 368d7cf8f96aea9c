"""A scale through a sampler: does what it plays sound as the samples do, and do velocity layers meet?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.render.level import Audio, loudness, rms_db
from timbrel.library.verify.file_checks import Opcodes, is_chord, is_struck, layer_of, parse_sfz, region_cents
from timbrel.library.verify.report import LibraryFault, ScaleResult
from timbrel.library.verify.samplers import FluidSynth, Sampler, Sfizz
from timbrel_bundle.audio import read_audio
from timbrel_bundle.yin import ONSET_SECONDS, Yin, track_pitch

MAX_KEYS = 13
HELD_SECONDS = 1.0
"""A key is held for as long as its note was when it was rendered, but for so long at least: bowed notes
take a while to find their pitch, and waver about it."""

LOOPED_SECONDS = 0.3
"""A looped sample is played for so much longer than its first pass lasts."""

LOOP_DROP_DB = 6.0
"""A loop that is softer by this after its first pass does not hold its sound."""

SAME_CENTS = 5.0
"""A played note may lie so far from its own tuned sample."""

SAME_DB = 1.0
"""And be so much louder or softer than the instrument file says."""

STEP_DB = 1.0
"""The first velocity of a layer may be so much louder than the last of the layer below."""

FALL_DB = 0.1
"""And so much softer: a listener hears no less."""

CHORD_DB = 2.0
"""Of chords, so much more either way: how their tones add up is a matter of phases."""

WELL_IN_TUNE_CENTS = 15.0


def play_scale(
    folder: Path, path: Path, rows: Mapping[str, ManifestRow]
) -> tuple[list[LibraryFault], ScaleResult | None]:
    """Plays up to MAX_KEYS keys of an instrument, each zone's own, and measures them; then where layers meet.
    Of an instrument of chords, only the latter.

    It is a .sfz file that was checked, so that its samples are there, or the .sf2 file beside one; `rows` are
    by their files.
    """
    name = path.relative_to(folder).as_posix()
    regions = parse_sfz(path.with_suffix(".sfz").read_text(encoding="utf-8"))
    held = [region for region in regions if is_struck(region)]
    scale = _scale(held, rows)
    own_keys = [] if is_chord(path) else scale
    sample_rate = rows[held[0]["sample"]].sample_rate
    make = FluidSynth if path.suffix == ".sf2" else Sfizz
    try:
        sampler: Sampler = make(path, sample_rate)
    except ValueError as error:
        return [LibraryFault(name, "scale", str(error))], None
    tracker = Yin()
    faults: list[LibraryFault] = []
    off_sample: list[float] = []
    off_scale: list[float] = []
    with sampler:
        for region in own_keys:
            row = rows[region["sample"]]
            own, _ = read_audio(folder / row.file)
            key = _own_key(region, row)
            played = sampler.play(key, row.velocity, _played_seconds(row, len(own) / sample_rate))
            if fault := _fault_of_level(sampler.name, played, key, region, row):
                faults.append(LibraryFault(name, "scale", fault))
                continue
            held_samples = round(_held_seconds(row, len(own) / sample_rate) * sample_rate)
            own, played = own[:held_samples], played[:held_samples]
            heard, of_sample = (tracker.measure(each, sample_rate) for each in (played, own))
            beside = cents_beside(played, own, sample_rate)
            if heard is None or beside is None or of_sample is None or abs(of_sample - row.pitch) > 0.5:
                continue  # its pitch is not tracked with confidence
            wanted = 100 * (key - row.pitch) + region_cents(region)
            cents = beside - wanted
            off_sample.append(abs(cents))
            off_scale.append(abs(100.0 * (heard - row.pitch) - (wanted - row.tune_cents)))
            if abs(cents) > SAME_CENTS:
                description = (
                    f"{sampler.name} plays key {key} {cents:+.1f} cents away from its own tuned sample"
                )
                faults.append(LibraryFault(name, "scale", description))
        steps = _steps(sampler, scale, rows, held, sample_rate)
    for key, velocity, step in steps:
        slack = CHORD_DB if is_chord(path) else 0.0
        if not -FALL_DB - slack <= step <= STEP_DB + slack:
            description = (
                f"{sampler.name} plays key {key} {step:+.1f} dB from velocity {velocity} to the next"
            )
            faults.append(LibraryFault(name, "level", description))
    n_well = sum(each <= WELL_IN_TUNE_CENTS for each in off_scale)
    largest = max((abs(step) for _, _, step in steps), default=0.0)
    return faults, ScaleResult(
        name, sampler.name, len(own_keys), len(off_sample), max(off_sample, default=0.0), n_well, largest
    )


def level(audio: Audio, sample_rate: int) -> float:
    """Measures the level that velocity layers are brought together by, in LUFS."""
    return loudness(audio[:sample_rate], sample_rate)


def _steps(
    sampler: Sampler,
    scale: Sequence[Opcodes],
    rows: Mapping[str, ManifestRow],
    held: Sequence[Opcodes],
    sample_rate: int,
) -> list[tuple[int, int, float]]:
    """Plays both sides of each border between layers, at the middle key of a scale: (key, velocity, dB). It
    sounds as its samples do; at others it would matter that takes are not equally bright."""
    if not scale:
        return []
    middle = scale[len(scale) // 2]
    key = _own_key(middle, rows[middle["sample"]])
    tops = sorted({layer_of(region)[1] for region in held})[:-1]
    levels = [
        [level(sampler.play(key, velocity, HELD_SECONDS), sample_rate) for velocity in (top, top + 1)]
        for top in tops
    ]
    return [(key, top, above - below) for top, (below, above) in zip(tops, levels, strict=True)]


def _own_key(region: Opcodes, row: ManifestRow) -> int:
    """Gives the key of a region that is nearest to its sample's pitch."""
    semitones = round((region_cents(region) - row.tune_cents) / 100.0)
    return min(max(row.pitch - semitones, int(region["lokey"])), int(region["hikey"]))


def _scale(regions: Sequence[Opcodes], rows: Mapping[str, ManifestRow]) -> list[Opcodes]:
    """Picks a region for each pitch, of a middle velocity and the first take; spread where there are many.

    Of a tuned instrument, which has a region for each key, one whose key is the sample's or next to it.
    """

    def semitones(region: Opcodes) -> int:
        row = rows[region["sample"]]
        return abs(_own_key(region, row) - row.pitch + round((region_cents(region) - row.tune_cents) / 100.0))

    by_pitch: dict[int, list[Opcodes]] = {}
    for region in regions:
        if region.get("seq_position", "1") == "1":
            by_pitch.setdefault(int(region["pitch_keycenter"]), []).append(region)
    pitches = sorted(by_pitch)
    chosen = np.unique(np.linspace(0, len(pitches) - 1, min(MAX_KEYS, len(pitches))).round().astype(int))
    found = []
    for some in (by_pitch[pitches[index]] for index in chosen):
        least = min(map(semitones, some))
        nearest = [each for each in some if semitones(each) == least]
        found.append(nearest[len(nearest) // 2])
    return found


def _held_seconds(row: ManifestRow, sample_seconds: float) -> float:
    """Tells how long to hold a key: not longer than the sample, whatever the manifest says."""
    return max(HELD_SECONDS, min(row.held_seconds, sample_seconds))


def _played_seconds(row: ManifestRow, sample_seconds: float) -> float:
    """Tells how long to play: beyond the loop's first pass."""
    seconds = _held_seconds(row, sample_seconds)
    if row.loop_end is None:
        return seconds
    return max(seconds, min(row.loop_end / row.sample_rate, sample_seconds) + LOOPED_SECONDS)


def _fault_of_level(sampler: str, played: Audio, key: int, region: Opcodes, row: ManifestRow) -> str | None:
    """Finds silence, another level than the file says, or a loop that dies; None where none of these is."""
    where = f"at key {key}, velocity {row.velocity}"
    if not np.abs(played).max(initial=0.0) > 0.0:
        return f"{sampler} plays nothing {where}"
    share = float(region.get(f"amp_velcurve_{row.velocity}", 1.0))
    gain_db = float(region["volume"]) + 20.0 * math.log10(share)
    off = level(played, row.sample_rate) - row.level_lufs - gain_db
    if abs(off) > SAME_DB:
        return f"{sampler} plays {off:+.1f} dB louder than {region['sample']} is to be {where}"
    if row.loop is None:
        return None
    drop = rms_db(played[row.loop.start : row.loop.end]) - rms_db(played[row.loop.end :])
    if drop > LOOP_DROP_DB:
        return f"{sampler} loses {drop:.0f} dB {where} once the loop repeats"
    return None


def cents_beside(played: Audio, own: Audio, sample_rate: int) -> float | None:
    """Measures how far a played note lies above its sample, in cents; None where they share no pitch.

    It is the median over moments, each compared with the same one of the other. The pitch of a whole note
    that wanders, by vibrato or beating, depends by five cents and more on where its frames happen to lie.
    """
    one, other = track_pitch(played, sample_rate), track_pitch(own, sample_rate)
    count = min(len(one.hertz), len(other.hertz))
    kept = one.voiced[:count] & other.voiced[:count] & (one.seconds[:count] >= ONSET_SECONDS)
    if not kept.any():
        return None
    return float(np.median(1200.0 * np.log2(one.hertz[:count][kept] / other.hertz[:count][kept])))
