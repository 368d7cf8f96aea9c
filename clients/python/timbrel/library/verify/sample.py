"""One sound file against what the manifest says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timbrel.library.level import Audio, decibels
from timbrel.library.loop import JOINT_DB, STEP_DB, Loop, joint_excess_db, level_step_db
from timbrel.library.manifest import ManifestRow
from timbrel.library.pitch import TrackerPair
from timbrel.library.riff import BITS
from timbrel.library.tuning import cents_off, is_in_tune
from timbrel.library.verify.chunks import read_chunks, read_sampler_chunk
from timbrel.library.verify.report import Fault
from timbrel_bundle.audio import read_audio
from timbrel_bundle.errors import AudioError
from timbrel_bundle.files import sha256_file

SILENT_DB = -60.0
"""A sample whose peak is below this is taken for silence."""

FULL_SCALE = 1.0 - 2.0 ** (2 - BITS)
"""Samples from here up are as large as the format can hold: libraries are written 1 dB below."""

CLICK_TOLERANCE_DB = 0.5
"""For the joint measured in the file, which is rounded to 24 bits."""


@dataclass(frozen=True)
class CheckedSample:
    """What was found of one file."""

    faults: tuple[Fault, ...]
    in_tune: bool = False
    unpitched: bool = False


def check_sample(folder: Path, row: ManifestRow, trackers: TrackerPair) -> CheckedSample:
    """Opens, measures and compares one file."""
    path = folder / row.file
    if not path.is_file():
        return CheckedSample((Fault(row.file, "missing", "the file is missing"),))
    faults = []
    if sha256_file(path) != row.sha256:
        faults.append(Fault(row.file, "hash", "the file was altered: its SHA-256 is not the manifest's"))
    try:
        audio, sample_rate = read_audio(path)
    except AudioError as error:
        return CheckedSample((*faults, Fault(row.file, "unreadable", str(error).removeprefix(f"{path}: "))))
    faults += [Fault(row.file, *fault) for fault in _sound_faults(audio, sample_rate, row)]
    faults += [Fault(row.file, "loop", fault) for fault in _loop_faults(path, audio, sample_rate, row)]
    heard = trackers.measure(audio, sample_rate)
    unpitched = heard == (None, None)
    in_tune = is_in_tune(row.pitch, *heard, tune=row.tune_cents)
    if not in_tune and not any(fault.kind == "silence" for fault in faults):
        faults.append(Fault(row.file, "pitch", _describe(row, heard)))
    return CheckedSample(tuple(faults), in_tune, unpitched)


def _describe(row: ManifestRow, heard: tuple[float | None, float | None]) -> str:
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
    if peak >= FULL_SCALE:
        n_full = int(np.count_nonzero(np.abs(audio) >= FULL_SCALE))
        yield "clipping", f"is clipped: {n_full} samples are at full scale"
    if decibels(peak) < SILENT_DB:
        yield "silence", f"is silent: its peak is {decibels(peak):.0f} dB"


def _loop_faults(path: Path, audio: Audio, sample_rate: int, row: ManifestRow) -> Iterator[str]:
    stated = None if row.loop_start is None or row.loop_end is None else (row.loop_start, row.loop_end)
    if path.suffix == ".wav":
        yield from _chunk_faults(path, stated)
    if stated is None:
        return
    loop = Loop(*stated)
    if not 0 <= loop.start < loop.end < len(audio):
        yield f"its loop {loop.start}..{loop.end} lies outside of its {len(audio)} samples"
        return
    joint, step = joint_excess_db(audio, loop), level_step_db(audio, loop, sample_rate)
    if joint > JOINT_DB + CLICK_TOLERANCE_DB:
        yield f"its loop clicks: the joint is {joint:.1f} dB sharper than anything within the loop"
    if abs(step) > STEP_DB + CLICK_TOLERANCE_DB:
        yield f"its loop jumps in level by {step:.1f} dB"


def _chunk_faults(path: Path, stated: tuple[int, int] | None) -> Iterator[str]:
    try:
        chunk = read_sampler_chunk(read_chunks(path).get("smpl", b""))
    except ValueError as error:
        yield str(error)
        return
    if chunk.loops != (() if stated is None else (stated,)):
        yield f"its smpl chunk has the loops {list(chunk.loops)}, the manifest says {stated}"
