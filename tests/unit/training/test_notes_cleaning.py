"""Cleaning, trimming and folding of notes: plain arrays, no source."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import Cleaner, NoteFault, audio_digest, without_offset
from timbrel_training.notes.note import Note, draw_note
from timbrel_training.notes.recording import (
    LEFT_FOLD,
    MEAN_FOLD,
    RIGHT_FOLD,
    choose_fold,
    fade_out,
    sounding_samples,
)

RATE = 48_000
TIME = np.arange(RATE) / RATE


def tone(frequency: float = 440.0, level: float = 0.5, phase: float = 0.0) -> NDArray[np.float32]:
    return (level * np.sin(2 * np.pi * frequency * TIME + phase)).astype(np.float32)


def note(audio: NDArray[np.float32], instrument: str = "A", pitch: int = 60, cell: bytes = b"") -> Note:
    return Note(audio, RATE, instrument, "F", pitch, 100, 1.0, "test", cell_digest=cell)


def fault_of(cleaner: Cleaner, note: Note) -> NoteFault | None:
    """Why a note is dropped, by itself or beside those that the cleaner has seen."""
    return cleaner.audio_fault(note.audio, note.sample_rate, note.pitch) or cleaner.repeat_fault(
        audio_digest(note.audio), note.instrument, note.pitch, note.cell_digest
    )


@pytest.mark.parametrize(
    ("audio", "fault"),
    [
        (tone(), None),
        (tone(level=0.0012), None),
        (tone(level=0.0008), NoteFault.SILENT),
        (np.zeros(0, np.float32), NoteFault.SILENT),
        (tone(level=1.0), None),
        (tone(82.4, level=1.0), None),
        (tone(level=1.5), None),
        (tone(level=1.02).clip(-1.0, 1.0), NoteFault.CLIPPED),
        (np.append(tone(level=0.5), [1.0, 1.0, 1.0, 0.0]).astype(np.float32), NoteFault.CLIPPED),
        (np.append(tone(level=0.5), [1.0, 1.0, -1.0, 0.0]).astype(np.float32), None),
        (np.full(100, np.nan, np.float32), NoteFault.NOT_FINITE),
    ],
)
def test_notes_that_teach_nothing_are_dropped(audio: NDArray[np.float32], fault: NoteFault | None) -> None:
    assert fault_of(Cleaner(), note(audio)) is fault


def test_an_offset_goes_and_the_lowest_note_stays() -> None:
    lowest = tone(56.0, 0.2)
    held = slice(RATE // 2, None)
    kept = without_offset(lowest + np.float32(0.3), RATE)[held]
    assert abs(kept.mean()) < 1e-4
    assert abs(20 * np.log10(kept.std() / lowest[held].std())) < 0.1


def test_a_copy_is_dropped_and_a_different_note_is_kept() -> None:
    cleaner = Cleaner()
    assert fault_of(cleaner, note(tone())) is None
    assert fault_of(cleaner, note(tone(), "B", 72)) is NoteFault.DUPLICATE
    assert fault_of(cleaner, note(tone(level=0.49))) is None


def test_one_sound_under_two_names_is_kept_once() -> None:
    cleaner = Cleaner()
    assert fault_of(cleaner, note(tone(level=0.3), "Violin", cell=b"same")) is None
    assert fault_of(cleaner, note(tone(level=0.4), "Violin", cell=b"same")) is None
    assert fault_of(cleaner, note(tone(level=0.5), "Fiddle", cell=b"same")) is NoteFault.SAME_CELL
    assert fault_of(cleaner, note(tone(level=0.6), "Fiddle", 61, cell=b"same")) is None


def harmonics(pitch: float, numbers: range, seconds: float = 1.0) -> NDArray[np.float32]:
    hertz = 440.0 * 2.0 ** ((pitch - 69) / 12)
    time = TIME[: int(seconds * RATE)]
    tones = (tone(hertz * n, 0.3 / n)[: len(time)] for n in numbers if hertz * n < RATE / 2)
    return sum(tones, np.zeros(len(time), np.float32))


@pytest.mark.parametrize("pitch", [36, 60, 84, 96])
@pytest.mark.parametrize(
    ("numbers", "step", "seconds", "in_tune"),
    [
        (range(1, 9), 1, 1.0, True),
        (range(1, 2), 1, 1.0, True),  # as pure as a flute's
        (range(2, 9), 1, 1.0, True),  # its fundamental is missing, as a low piano's may be
        (range(1, 9, 2), 1, 1.0, True),  # as hollow as a clarinet's
        (range(1, 9), 2, 1.0, False),  # an octave above
        (range(1, 9), 4, 1.0, False),  # two octaves
        (range(1, 9), 0.5, 1.0, False),  # an octave below
        (range(1, 9), 1.5, 1.0, False),  # a fifth above
        (range(1, 9), 2, 0.03, True),  # too short to tell
    ],
)
def test_a_note_of_another_pitch_is_dropped_where_that_is_asked(
    pitch: int, numbers: range, step: float, seconds: float, in_tune: bool
) -> None:
    audio = harmonics(pitch + 12 * np.log2(step), numbers, seconds)
    fault = Cleaner(check_pitch=True).audio_fault(audio, RATE, pitch)
    assert fault is (None if in_tune else NoteFault.OFF_PITCH)
    assert Cleaner().audio_fault(audio, RATE, pitch) is None


@pytest.mark.parametrize("pitch", [36, 54, 72, 84])
@pytest.mark.parametrize(
    ("asked", "in_tune"), [(0, True), (12, False), (-12, False), (5, False), (-5, False)]
)
def test_a_tubular_bell_is_at_the_pitch_of_its_strike_tone(pitch: int, asked: int, in_tune: bool) -> None:
    """The pitch heard is that of none of its partials, whose 4th to 6th are about 2 : 3 : 4 times as high."""
    hertz = 440.0 * 2.0 ** ((pitch - 69) / 12)
    partials = {1.21: -16, 1.98: -11, 2.92: -2, 4.02: 0, 5.14: -7, 5.24: -6, 6.38: -16}
    audio = np.sum([tone(hertz * n, 0.2 * 10 ** (db / 20)) for n, db in partials.items()], axis=0)
    fault = Cleaner(check_pitch=True).audio_fault(audio.astype(np.float32), RATE, pitch + asked)
    assert fault is (None if in_tune else NoteFault.OFF_PITCH)


def test_a_fifth_below_with_a_strong_third_partial_is_no_bell() -> None:
    audio = harmonics(53, range(1, 9)) + tone(440.0 * 2.0 ** ((72 - 69) / 12), 0.5)
    assert Cleaner(check_pitch=True).audio_fault(audio, RATE, 60) is NoteFault.OFF_PITCH


def test_stereo_is_averaged_unless_it_cancels() -> None:
    assert choose_fold(np.stack([tone(), tone()])) is MEAN_FOLD
    assert choose_fold(np.stack([tone(), 0 * tone()])) is MEAN_FOLD
    assert choose_fold(np.stack([tone(), tone(phase=np.pi / 2)])) is MEAN_FOLD
    assert choose_fold(np.stack([tone(level=0.5), -tone(level=0.4)])) is LEFT_FOLD
    assert choose_fold(np.stack([tone(level=0.4), -tone(level=0.5)])) is RIGHT_FOLD
    assert choose_fold(np.zeros((2, 10), np.float32)) is MEAN_FOLD


def test_folding_keeps_the_level() -> None:
    assert np.allclose(MEAN_FOLD(np.stack([tone(), tone()])), tone())
    assert np.allclose(RIGHT_FOLD(np.stack([tone(), -tone()])), -tone() * 0.5**0.5, atol=1e-6)


def test_a_note_ends_60_db_below_its_peak() -> None:
    decaying = tone() * np.exp(-TIME * 20).astype(np.float32)  # -60 dB after 0.345 s
    assert 0.33 < sounding_samples(decaying, RATE) / RATE < 0.36
    assert sounding_samples(tone(), RATE) == RATE
    assert sounding_samples(np.zeros(RATE, np.float32), RATE) == 0
    assert sounding_samples(np.zeros(0, np.float32), RATE) == 0


def test_a_fade_ends_at_zero_and_touches_nothing_else() -> None:
    audio = np.ones(1000, np.float32)
    faded = fade_out(audio, 100)
    assert np.all(faded[:900] == 1) and faded[-1] == 0 and np.all(np.diff(faded[899:]) <= 0)
    assert np.all(audio == 1)


def test_draws_are_repeatable_and_cover_their_ranges() -> None:
    draws = [draw_note("Violin", pitch, index) for pitch in range(128) for index in range(20)]
    assert draws == [draw_note("Violin", pitch, index) for pitch in range(128) for index in range(20)]
    velocities = [draw.velocity for draw in draws]
    assert (min(velocities), max(velocities)) == (1, 127)
    holds = np.log([draw.held_seconds for draw in draws])
    assert np.log(0.1) <= holds.min() and holds.max() < np.log(4.0)
    quarters, _ = np.histogram(holds, bins=4, range=(np.log(0.1), np.log(4.0)))
    assert quarters.min() > 0.8 * quarters.mean()
