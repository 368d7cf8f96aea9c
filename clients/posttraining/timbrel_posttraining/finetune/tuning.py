"""The pitch of samples beside the pitch that their names say: measured, named, mended. Too short ones go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from timbrel.errors import MissingExtraError
from timbrel.pitch import PitchMeter
from timbrel.progress import bar
from timbrel_bundle.timbre_encoder import MIN_SECONDS, trim
from timbrel_bundle.yin import Yin
from timbrel_training.notes.cleaning import has_flat_top
from timbrel_training.notes.folder import FolderEntry, FolderSource
from timbrel_training.notes.note import SourceError
from timbrel_training.notes.recording import read_recording, sounding_samples, trim_onset

TOLERANCE_CENTS = 20.0
"""Samples that are further off are named."""

SEMITONE_CENTS = 100.0
"""Beyond this it is the name that is wrong: another octave's, or written for a transposing instrument."""

LOWEST_PITCH, HIGHEST_PITCH = 31, 96
"""The lowest and the highest note that both trackers hear, some 47 and 2093 Hz: of a lower one they take a
partial for the pitch, of a higher one what is an octave below it and not there."""

MOST_LINES = 20
"""Samples that are named one by one; of more, there is the count."""


def check_tuning(source: FolderSource, retune: bool, tell: Callable[[str], object]) -> FolderSource:
    """Measures each sample, and tells of those that are too short, of those that are clipped and of those not
    in tune with their names.

    The first are left out. With `retune` the last are given back in tune: resampled where they are off by
    a semitone or less, else at the note that they sound at, whatever they are called. Raises SourceError: a
    file cannot be read, or none is long enough.
    """
    mended, lines, clipped = [], [], []
    with bar("listening", len(source.entries), "sample") as shown:
        measured = []
        for each in _measured(source):
            measured.append(each)
            shown.update()
    for entry, seconds, cents, is_clipped in measured:
        if seconds < MIN_SECONDS:
            name = os.path.relpath(entry.path, source.folder)
            tell(f"left out: {name} holds {seconds:.3f} s of sound, {MIN_SECONDS:g} s at least are needed")
            continue
        if is_clipped:
            clipped.append(os.path.relpath(entry.path, source.folder))
        is_off = cents is not None and abs(cents) > TOLERANCE_CENTS
        right = _in_tune(entry, cents) if is_off and cents is not None else entry
        mended.append(right if retune else entry)
        if is_off and cents is not None:
            name = os.path.relpath(entry.path, source.folder)
            lines.append(f"  {name}: {cents:+.0f} cents from note {entry.pitch}{_hint(entry, right, retune)}")
    if not mended:
        raise SourceError(f"{source.folder}: no sample holds {MIN_SECONDS:g} s of sound")
    if clipped:
        names = ", ".join(clipped[:MOST_LINES])
        more = f" and {len(clipped) - MOST_LINES} more" if len(clipped) > MOST_LINES else ""
        tell(f"flat at full scale, as what is clipped is, and learnt so: {names}{more}")
    kept = source if mended == source.entries else source.corrected(mended)
    if not lines:
        return kept
    counted = f"{len(lines)} of {len(mended)} samples are more than {TOLERANCE_CENTS:.0f} cents off"
    tell(f"{counted}, {'and were retuned' if retune else 'and are learnt so: --retune mends them'}:")
    for line in lines[:MOST_LINES]:
        tell(line)
    if len(lines) > MOST_LINES:
        tell(f"  and {len(lines) - MOST_LINES} more")
    return kept


def _measured(source: FolderSource) -> Iterator[tuple[FolderEntry, float, float | None, bool]]:
    """Each sample, for how many seconds it sounds, how many cents it is above its pitch, and whether it is
    clipped; no cents where no pitch is heard, or its note is too low or too high for that."""
    yin = Yin()
    try:
        second: PitchMeter | None = PitchMeter()
    except MissingExtraError:
        second = None  # then the first alone is believed
    for entry in source.entries:
        audio, sample_rate = read_recording(entry.path)
        audio = trim_onset(audio, sample_rate)
        is_heard = LOWEST_PITCH <= entry.pitch <= HIGHEST_PITCH
        cents = _cents(yin.measure(audio, sample_rate), entry.pitch) if is_heard else None
        if second is not None and is_heard and (cents is None or abs(cents) > TOLERANCE_CENTS):
            other = _cents(second.measure(audio, sample_rate), entry.pitch)
            # What only one of two hears is no reason to complain.
            cents = None if other is None else min(cents if cents is not None else other, other, key=abs)
        seconds = sound_seconds(audio[: sounding_samples(audio, sample_rate)], sample_rate)
        yield entry, seconds, cents, has_flat_top(audio)


def sound_seconds(audio: NDArray[np.float32], sample_rate: int) -> float:
    """Returns the seconds of sound that the timbre encoder hears in audio [samples]."""
    return len(trim(audio, sample_rate)) / sample_rate if audio.any() else 0.0


def _cents(measured: float | None, pitch: int) -> float | None:
    return None if measured is None else 100.0 * (measured - pitch)


def _in_tune(entry: FolderEntry, cents: float) -> FolderEntry:
    """The sample as it is to be learnt."""
    if abs(cents) <= SEMITONE_CENTS:
        return replace(entry, cents_off=round(cents, 1))
    semitones = round(cents / 100.0)
    pitch = int(np.clip(entry.pitch + semitones, 0, 127))
    return replace(entry, pitch=pitch, cents_off=round(cents - 100.0 * semitones, 1))


def _hint(entry: FolderEntry, right: FolderEntry, retune: bool) -> str:
    if right.pitch == entry.pitch:
        return ""
    octaves, rest = divmod(right.pitch - entry.pitch, 12)
    why = "another octave's name" if rest == 0 and octaves else "another note's name"
    return f" ({why}: {'taken as' if retune else 'sounds like'} note {right.pitch})"
