"""The two-sample test on notes of a soundfont: blind to trifles, and not to what is heard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from requirements_gate import find_soundfont, require_system
from scipy.signal import firwin, oaconvolve

from timbrel_posttraining.evaluate.measure.two_sample import statistics, two_sample
from timbrel_training.notes.playing import NoteRecorder
from timbrel_training.notes.soundfont import SoundfontSource

pytestmark = pytest.mark.acceptance

RATE = 48_000
PROGRAMS = (0, 4, 6, 7, 8, 11, 12, 20, 21, 24, 25, 32, 40, 42, 46, 48, 52, 56, 57, 60, 64, 68, 71, 73, 75, 79)
PITCHES = (40, 45, 50, 55, 60, 65, 70, 75)
N_DRAWS = 2
TRIFLE = 0.58
"""An AUC that 400 notes may have by chance."""
TOLD = 0.75

Audio = NDArray[np.float32]
Edit = Callable[[Audio, np.random.Generator], Audio]


@pytest.fixture(scope="module")
def notes() -> list[tuple[int, Audio]]:
    """416 notes of 208 cells, each with the number of its cell."""
    require_system("fluidsynth", "soundfont")
    font = find_soundfont()
    assert font is not None
    source = SoundfontSource(
        font, programs=PROGRAMS, pitches=PITCHES, n_draws=N_DRAWS, recorder=NoteRecorder(RATE)
    )
    cells: dict[tuple[str, int], int] = {}
    return [
        (cells.setdefault((note.instrument, note.pitch), len(cells)), np.asarray(note.audio, np.float32))
        for note in source
    ]


@pytest.fixture(scope="module")
def of_notes(notes: list[tuple[int, Audio]]) -> NDArray[np.float32]:
    return statistics((audio for _, audio in notes), RATE)


def hiss(note: Audio, rng: np.random.Generator) -> Audio:
    """White noise of -94 dBFS."""
    return (note + 10 ** (-94 / 20) * rng.normal(size=len(note))).astype(np.float32)


def low_pass(note: Audio, rng: np.random.Generator) -> Audio:
    """Nothing above 16 kHz."""
    return oaconvolve(note, firwin(255, 16_000, fs=RATE), mode="same").astype(np.float32)


def trim(note: Audio, rng: np.random.Generator) -> Audio:
    """1 to 5 ms shorter at the beginning, and 5 ms at the end."""
    return note[int(rng.uniform(0.001, 0.005) * RATE) : -int(0.005 * RATE)]


def gain(note: Audio, rng: np.random.Generator) -> Audio:
    """Up to 6 dB softer or louder."""
    return note * np.float32(10 ** (rng.uniform(-6, 6) / 20))


def louder(note: Audio, rng: np.random.Generator) -> Audio:
    """6 dB louder."""
    return note * np.float32(2.0)


def offset(note: Audio, rng: np.random.Generator) -> Audio:
    """A tenth of the peak off zero, which sets in within 0.1 s."""
    sets_in = np.clip(np.arange(len(note)) / (0.1 * RATE), 0, 1)
    return (note + 0.1 * np.abs(note).max() * np.sin(np.pi / 2 * sets_in) ** 2).astype(np.float32)


def flicker(note: Audio, rng: np.random.Generator) -> Audio:
    """Levels that are wrong by 0.5 dB rms, each codec frame of 27 ms by its own error."""
    knots = rng.normal(0, 0.5, len(note) // 1280 + 2)
    gains = 10 ** (np.interp(np.arange(len(note)) / 1280, np.arange(len(knots)), knots) / 20)
    return (note * gains).astype(np.float32)


def rough(note: Audio, rng: np.random.Generator) -> Audio:
    """Noise 30 dB below the note, as loud as the note is."""
    loudness = np.sqrt(oaconvolve(note**2, np.full(960, 1 / 960), mode="same").clip(0))
    return (note + 10 ** (-30 / 20) * loudness * rng.normal(size=len(note))).astype(np.float32)


def auc_of(edit: Edit, notes: list[tuple[int, Audio]], of_notes: NDArray[np.float32]) -> float:
    edited = statistics(
        (edit(audio, np.random.default_rng([7, n])) for n, (_, audio) in enumerate(notes)), RATE
    )
    scores = two_sample(of_notes, edited, [cell for cell, _ in notes])
    assert scores is not None
    return scores.auc().value


@pytest.mark.parametrize("edit", [hiss, low_pass, trim, gain, louder, offset])
def test_a_trifle_is_not_told(
    edit: Edit, notes: list[tuple[int, Audio]], of_notes: NDArray[np.float32]
) -> None:
    assert auc_of(edit, notes, of_notes) <= TRIFLE


@pytest.mark.parametrize("edit", [flicker, rough])
def test_what_is_heard_is_told(
    edit: Edit, notes: list[tuple[int, Audio]], of_notes: NDArray[np.float32]
) -> None:
    assert auc_of(edit, notes, of_notes) >= TOLD
