"""Notes as recordings have them, sounds that are no notes, and how references are fitted to both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from timbrel_training.errors import CheckpointError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.timbre import foreign, recordings, references
from timbrel_training.timbre.features import SHORTEST_CROP, begun_otherwise, disturbed

RATE = 48_000


def tone(hertz: float = 440.0, seconds: float = 1.0) -> recordings.Audio:
    time = np.arange(round(seconds * RATE)) / RATE
    return (0.5 * np.exp(-2 * time) * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def peak_hertz(audio: recordings.Audio) -> float:
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 8 * RATE))
    return float(spectrum.argmax()) / 8


@pytest.mark.parametrize("seed", range(12))
def test_a_recorded_note_is_sound_of_about_its_length_and_pitch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heard = recordings.as_recorded(tone(), RATE, rng)
    assert heard.dtype == np.float32 and np.isfinite(heard).all()
    assert 0.8 * RATE < len(heard) < 1.1 * RATE
    assert abs(1200 * np.log2(peak_hertz(heard) / 440.0)) < recordings.CENTS + recordings.VIBRATO_CENTS + 5
    assert np.array_equal(heard, recordings.as_recorded(tone(), RATE, np.random.default_rng(seed)))
    assert len(recordings.as_recorded(tone()[:3], RATE, rng)) > 0


def test_noise_is_as_far_below_a_note_as_it_should_be() -> None:
    for seed in range(8):
        noise = recordings.in_noise(tone(), RATE, np.random.default_rng(seed)) - tone()
        below = 10 * np.log10(np.mean(tone() ** 2) / np.mean(noise**2))
        assert recordings.NOISE_DB[0] - 4 < below < recordings.NOISE_DB[1] + 4


def test_a_room_rings_on() -> None:
    click = np.zeros(RATE, np.float32)
    click[0] = 1.0
    rung = [recordings.in_room(click, RATE, np.random.default_rng(seed)) for seed in range(10)]
    tails = [float(np.square(each[1000:]).sum() / np.square(each).sum()) for each in rung]
    assert max(tails) > 0.1 and min(tails) < 0.01  # some rooms are none


def test_a_room_is_silent_before_the_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    late = np.zeros(RATE // 10, np.float32)
    late[RATE // 20 :] = 1.0
    monkeypatch.setattr(recordings, "microphone", lambda *_: 1.0)  # it has no time of its own
    for seed in range(10):
        heard = recordings.in_room(late, RATE, np.random.default_rng(seed))
        assert np.abs(heard[: RATE // 20]).max() < 1e-4


def test_disturbed_levels_are_coloured_and_have_a_floor() -> None:
    levels = np.full((30, 10, 64), -100.0, np.float32)
    levels[:, :, 20] = 0.0
    levels[:15, :, 20] = -30.0
    levels[:, 5:] = 0.0  # what lies behind a note's frames is no sound
    heard = disturbed(levels, np.full(30, 5), np.random.default_rng(0))[:, :5]
    assert np.abs(heard[:, :, 20] - levels[:, :5, 20]).max() < 20
    floor = np.median(heard, axis=(1, 2)) - levels[:, 0, 20]
    assert ((floor > -70) & (floor < -5)).all()


def test_what_is_silent_stays_so() -> None:
    heard = disturbed(np.zeros((2, 10, 64), np.float32), np.zeros(2, np.int64), np.random.default_rng(0))
    assert np.isfinite(heard).all()


@pytest.mark.parametrize("make", [foreign.drum_loop, foreign.speech, foreign.noise])
def test_foreign_sounds_last_as_long_as_asked(
    make: Callable[[int, int, np.random.Generator], recordings.Audio],
) -> None:
    for seed in range(4):
        sound = make(RATE, RATE, np.random.default_rng(seed))
        assert sound.shape == (RATE,) and np.isfinite(sound).all() and np.abs(sound).max() > 1e-3


def test_many_notes_are_many_at_once(library_dir: Path) -> None:
    notes = NoteDataset(library_dir)
    rows = np.flatnonzero(notes.length > 0)
    chord = foreign.many_notes(notes, rows, RATE, 0.03, np.random.default_rng(0))
    alone = notes.audio(int(rows[0]))
    assert len(chord) == RATE and np.abs(chord).max() > np.abs(alone).max()
    drawn = foreign.foreign_sound(notes, rows, 1.0, np.random.default_rng(3))
    assert len(drawn) > notes.sample_rate / 4


def cloud(centre: int, spread: float, count: int, rng: np.random.Generator) -> references.Embeddings:
    points = np.eye(8)[centre] + spread * rng.standard_normal((count, 8))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def test_fitted_shares_are_reliable_and_foreign_sounds_are_not_near(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    judged = np.concatenate([cloud(number, 0.45, 2000, rng) for number in range(4)])
    instrument = np.repeat(np.arange(4), 2000)
    mixed = rng.permutation(len(judged))
    far = cloud(6, 0.1, 500, rng)
    means = references.mean_embeddings(judged, instrument, 4)
    found, told = references.fit_references(means, judged[mixed], instrument[mixed], far)
    assert 0.5 < told.named < 0.99 and told.among_three > told.named
    assert told.unreliability < 0.1
    assert told.foreign_refused > 0.9 and told.refused < 0.1
    references.write_references(tmp_path, found, ["a", "b", "c", "d"])
    again = references.read_references(tmp_path)
    assert again.sharpness == found.sharpness and np.allclose(again.embeddings, means, atol=1e-5)
    (tmp_path / references.REFERENCES_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match="train stage 1 again"):
        references.read_references(tmp_path)


def test_a_single_note_is_judged_by_itself() -> None:
    far = np.array([[0.0, 1.0], [-1.0, 0.0]], np.float32)
    mean, instrument = np.array([[1.0, 0.0]], np.float32), np.zeros(1, np.int64)
    _, told = references.fit_references(mean, mean, instrument, far)
    assert (told.named, told.among_three, told.refused, told.foreign_refused) == (1.0, 1.0, 0.0, 1.0)


def test_shares_that_promise_too_much_are_found_out() -> None:
    shares, right = np.full(100, 0.95), np.arange(100) % 2 == 0
    assert references.unreliability(shares, right) == pytest.approx(0.45, abs=0.1)


def test_notes_begin_late_behind_noise_or_softly_and_go_on_as_they_are() -> None:
    n_notes, length, n_frames = 400, 60, 40
    levels = np.zeros((n_notes, length, 4), np.float32)  # behind a note's frames 0 dB, louder than all of it
    levels[:, :n_frames] = (-30.0 - np.arange(n_frames) / 2)[None, :, None]  # each frame tells its number
    given = levels.copy()
    heard, frames = begun_otherwise(levels, np.full(n_notes, n_frames), np.random.default_rng(1))
    assert np.array_equal(levels, given) and heard.dtype == np.float32
    assert frames.min() >= SHORTEST_CROP and (frames < n_frames).any() and (frames > n_frames).any()
    soft = behind = 0
    for row, count in zip(heard, frames, strict=True):
        assert row[:count].max() < -20.0  # no noise is as loud as what lies behind the note
        last = 2.0 * (-30.0 - row[count - 1, 0])
        assert last == pytest.approx(n_frames - 1)  # whatever it begins with, it ends as it did
        first = 2.0 * (-30.0 - row[:count, 0])  # numbers of frames, where nothing was changed
        behind += bool(np.ptp(row[0]) > 0)
        soft += bool(np.ptp(row[0]) == 0 and first[0] > first[count // 2])
    assert soft > n_notes / 10 and behind > n_notes / 10
    again, _ = begun_otherwise(levels, np.full(n_notes, n_frames), np.random.default_rng(1))
    assert np.array_equal(again, heard)
