"""A scale through sfizz, an SFZ player: does what it plays sound as the samples do?"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.render.level import Audio, rms_db
from timbrel.library.render.yin import Yin, track_pitch
from timbrel.library.verify.file_checks import Opcodes, parse_sfz
from timbrel.library.verify.report import LibraryFault, ScaleResult
from timbrel.pitch import ONSET_SECONDS
from timbrel_bundle.audio import read_audio

NO_SFIZZ = "no scale was played: sfizz is not installed (pip install pysfizz)"

MAX_KEYS = 13
HELD_SECONDS = 1.0
"""A key is held for as long as its note was when it was rendered, but for so long at least: bowed notes
take a while to find their pitch, and waver about it."""

STANDARD_ERROR = 2
BLOCK_SIZE = 1024

LOOPED_SECONDS = 0.3
"""A looped sample is played for so much longer than its first pass lasts."""

LOOP_DROP_DB = 6.0
"""A loop that is softer by this after its first pass does not hold its sound."""

SAME_CENTS = 5.0
"""A played note may lie so far from its own tuned sample."""

WELL_IN_TUNE_CENTS = 15.0


def has_sfizz() -> bool:
    return importlib.util.find_spec("pysfizz") is not None


def play_scale(
    folder: Path, path: Path, rows: Mapping[str, ManifestRow]
) -> tuple[list[LibraryFault], ScaleResult | None]:
    """Plays up to MAX_KEYS keys of an instrument, each zone's own, and measures them.

    The .sfz file must have been checked: its samples are there.
    """
    from pysfizz import Synth

    name = path.relative_to(folder).as_posix()
    regions = _scale(parse_sfz(path.read_text(encoding="utf-8")))
    sample_rate = rows[regions[0]["sample"]].sample_rate
    synth = Synth(sample_rate=sample_rate, block_size=BLOCK_SIZE)
    with _silent_sfizz():
        loaded = synth.load_sfz_file(path, quiet=False)
    # Wait for samples to be read: otherwise, on a busy machine, notes fall silent in their middle.
    synth._synth.enable_freewheeling()
    if not loaded:
        return [LibraryFault(name, "scale", "sfizz cannot load it")], None
    tracker = Yin()
    faults: list[LibraryFault] = []
    off_sample: list[float] = []
    off_scale: list[float] = []
    for region in regions:
        row = rows[region["sample"]]
        own, _ = read_audio(folder / row.file)
        played = _render(synth, row, len(own) / sample_rate)
        if fault := _fault_of_level(played, row):
            faults.append(LibraryFault(name, "scale", fault))
            continue
        held = round(_held_seconds(row, len(own) / sample_rate) * sample_rate)
        own, played = own[:held], played[:held]
        heard = tracker.measure(played, sample_rate)
        beside = cents_beside(played, own, sample_rate)
        if heard is None or beside is None or not _is_sure(tracker.measure(own, sample_rate), row):
            continue
        cents = beside - row.tune_cents
        off_sample.append(abs(cents))
        off_scale.append(abs(100.0 * (heard - row.pitch)))
        if abs(cents) > SAME_CENTS:
            description = f"sfizz plays key {row.pitch} {cents:+.1f} cents away from its own tuned sample"
            faults.append(LibraryFault(name, "scale", description))
    n_well = sum(each <= WELL_IN_TUNE_CENTS for each in off_scale)
    return faults, ScaleResult(name, len(regions), len(off_sample), max(off_sample, default=0.0), n_well)


@contextmanager
def _silent_sfizz() -> Iterator[None]:
    """Discards what the library itself writes to standard error.

    pysfizz does so by `sys.stderr`, which notebooks and others replace by what is no file.
    """
    sys.stderr.flush()
    kept = os.dup(STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
        os.close(nowhere)


def _scale(regions: Sequence[Opcodes]) -> list[Opcodes]:
    """Picks a region for each pitch, of a middle velocity and the first take; spread where there are many."""
    by_pitch: dict[int, list[Opcodes]] = {}
    for region in regions:
        if region.get("seq_position", "1") == "1":
            by_pitch.setdefault(int(region["pitch_keycenter"]), []).append(region)
    pitches = sorted(by_pitch)
    chosen = np.unique(np.linspace(0, len(pitches) - 1, min(MAX_KEYS, len(pitches))).round().astype(int))
    return [by_pitch[pitches[index]][len(by_pitch[pitches[index]]) // 2] for index in chosen]


def _held_seconds(row: ManifestRow, sample_seconds: float) -> float:
    """Tells how long to hold a key: not longer than the sample, whatever the manifest says."""
    return max(HELD_SECONDS, min(row.held_seconds, sample_seconds))


def _render(synth: Any, row: ManifestRow, sample_seconds: float) -> Audio:
    """Has sfizz play the sample's own key and velocity, mono [samples]: beyond the loop's first pass."""
    seconds = _held_seconds(row, sample_seconds)
    if row.loop_end is not None:
        first_pass = min(row.loop_end / row.sample_rate, sample_seconds)
        seconds = max(seconds, first_pass + LOOPED_SECONDS)
    synth._synth.all_sound_off()  # nothing of the key before
    stereo = synth.render_note(row.pitch, row.velocity, seconds, seconds)
    return np.asarray(np.mean(stereo, axis=0), dtype=np.float32)


def _fault_of_level(played: Audio, row: ManifestRow) -> str | None:
    """Finds silence, or a loop that dies; None where neither is."""
    where = f"at key {row.pitch}, velocity {row.velocity}"
    if not np.abs(played).max(initial=0.0) > 0.0:
        return f"sfizz plays nothing {where}"
    if row.loop is None:
        return None
    drop = rms_db(played[row.loop.start : row.loop.end]) - rms_db(played[row.loop.end :])
    if drop > LOOP_DROP_DB:
        return f"sfizz loses {drop:.0f} dB {where} once the loop repeats"
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


def _is_sure(heard: float | None, row: ManifestRow) -> bool:
    """Tells whether the sample is tracked with confidence."""
    return heard is not None and abs(heard - row.pitch) <= 0.5
