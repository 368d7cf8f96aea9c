"""The two-sample test on notes that differ in a known way, or in trifles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import firwin, oaconvolve

from timbrel_posttraining.evaluate.measure.note_statistics import statistics_of
from timbrel_posttraining.evaluate.measure.two_sample import Scores, statistics, two_sample

RATE = 48_000
N_CELLS, DRAWS = 24, 4
CELLS = np.repeat(np.arange(N_CELLS), DRAWS)
Audio = NDArray[np.float32]


def plucked(cell: int, draw: int) -> Audio:
    """A plucked or held note: partials, decay, tremolo and breath of its cell's, a little other each time."""
    rng, own = np.random.default_rng(cell), np.random.default_rng([cell, draw])
    moments = np.arange(round(own.uniform(0.6, 1.0) * RATE)) / RATE
    hertz = 110 * 2 ** (rng.uniform(0, 36) / 12)
    bright, decay, tremolo = rng.uniform(2, 12), rng.uniform(0, 12), rng.uniform(0, 0.05)
    partials = [k for k in range(1, 25) if k * hertz < 15_000]
    levels = -bright * np.log2(partials) + own.normal(0, 1.5, len(partials))
    # Partial k is power k of what turns as the first does, and decays a little.
    turning = np.exp(2j * np.pi * hertz * moments + 1j) * 10 ** (-0.1 * decay * moments / 20)
    wave = np.polynomial.polynomial.polyval(turning, [0, *10 ** (levels / 20)]).imag
    wave *= 10 ** (-decay * moments / 20)
    breath = oaconvolve(own.normal(size=len(moments)), firwin(63, 4000, fs=RATE), mode="same")
    wave = (
        wave * (1 + tremolo * np.sin(2 * np.pi * 5 * moments)) + 10 ** (rng.uniform(-60, -35) / 20) * breath
    )
    rise = np.clip(moments / rng.uniform(0.005, 0.03), 0, 1)
    fall = np.clip((moments[-1] - moments) / 0.05, 0, 1)
    return (10 ** (own.uniform(-30, -14) / 20) * rise * fall * wave).astype(np.float32)


@pytest.fixture(scope="module")
def sources() -> list[Audio]:
    return [plucked(cell, draw) for cell in range(N_CELLS) for draw in range(DRAWS)]


@pytest.fixture(scope="module")
def of_sources(sources: list[Audio]) -> NDArray[np.float32]:
    return statistics(sources, RATE)


def hiss(note: Audio, rng: np.random.Generator) -> Audio:
    return (note + 10 ** (-94 / 20) * rng.normal(size=len(note))).astype(np.float32)


def low_pass(note: Audio, rng: np.random.Generator) -> Audio:
    return oaconvolve(note, firwin(255, 16_000, fs=RATE), mode="same").astype(np.float32)


def trim(note: Audio, rng: np.random.Generator) -> Audio:
    return note[int(rng.uniform(0.001, 0.005) * RATE) :]


def gain(note: Audio, rng: np.random.Generator) -> Audio:
    return note * np.float32(10 ** (rng.uniform(-6, 6) / 20))


def offset(note: Audio, rng: np.random.Generator) -> Audio:
    """A tenth of the peak off zero, which sets in within 0.1 s."""
    sets_in = np.clip(np.arange(len(note)) / (0.1 * RATE), 0, 1)
    return (note + 0.1 * np.abs(note).max() * np.sin(np.pi / 2 * sets_in) ** 2).astype(np.float32)


def flicker(note: Audio, rng: np.random.Generator) -> Audio:
    """Gains that move by 1 dB from one codec frame to the next."""
    knots = rng.normal(0, 1.0, len(note) // 1280 + 2)
    return (note * 10 ** (np.interp(np.arange(len(note)) / 1280, np.arange(len(knots)), knots) / 20)).astype(
        np.float32
    )


def rough(note: Audio, rng: np.random.Generator) -> Audio:
    """Noise 25 dB below the note, wherever it is loud."""
    loudness = np.sqrt(oaconvolve(note**2, np.full(960, 1 / 960), mode="same").clip(0))
    return (note + 10 ** (-25 / 20) * loudness * rng.normal(size=len(note))).astype(np.float32)


Edit = Callable[[Audio, np.random.Generator], Audio]


def auc_of(edit: Edit, sources: list[Audio], of_sources: NDArray[np.float32]) -> float:
    edited = [edit(note, np.random.default_rng([7, n])) for n, note in enumerate(sources)]
    scores = two_sample(of_sources, statistics(edited, RATE), CELLS)
    assert scores is not None
    return scores.auc().value


def test_trifles_are_not_told(sources: list[Audio], of_sources: NDArray[np.float32]) -> None:
    """All at once: were any of them told, so would be all. Real notes are in
    `tests/acceptance/test_two_sample.py`. Of so few notes 0.62 may be chance."""

    def all_at_once(note: Audio, rng: np.random.Generator) -> Audio:
        for edit in (low_pass, trim, gain, offset, hiss):
            note = edit(note, rng)
        return note

    assert auc_of(all_at_once, sources, of_sources) <= 0.62


@pytest.mark.parametrize("edit", [flicker, rough])
def test_what_is_heard_is_told(edit: Edit, sources: list[Audio], of_sources: NDArray[np.float32]) -> None:
    assert auc_of(edit, sources, of_sources) >= 0.9


def test_another_draw_of_the_cells_is_not_told(of_sources: NDArray[np.float32]) -> None:
    others = statistics(
        [plucked(cell, DRAWS + draw) for cell in range(N_CELLS) for draw in range(DRAWS)], RATE
    )
    scores = two_sample(of_sources, others, CELLS)
    assert scores is not None and 0.35 <= scores.auc().value <= 0.65


def test_statistics_do_not_depend_on_the_level(sources: list[Audio]) -> None:
    first, second = (statistics_of(np.float32(factor) * sources[0], RATE) for factor in (1.0, 2.0))
    assert np.allclose(first, second, atol=0.02, equal_nan=True)


def test_what_is_no_sound_is_refused_and_nothing_at_all_has_no_statistics(sources: list[Audio]) -> None:
    broken = sources[0].copy()
    broken[100] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        statistics_of(broken, RATE)
    n_statistics = len(statistics_of(sources[0], RATE))
    for nothing in (broken[:0], np.zeros(RATE, dtype=np.float32), sources[0][:10]):
        assert statistics_of(nothing, RATE).shape == (n_statistics,)


def test_scores_give_the_area_under_the_curve() -> None:
    cells = np.repeat(np.arange(10), 2)
    rng = np.random.default_rng(5)
    scores = Scores(rng.normal(0, 1, 20), rng.normal(1, 1, 20), cells)
    expected = np.mean(scores.candidate[:, None] > scores.source[None])
    whole = scores.auc()
    assert whole.value == pytest.approx(expected) and whole.low < whole.value < whole.high
    assert scores.auc_of(cells < 3).n == 6
    assert scores.auc_of(np.zeros(20, dtype=bool)).n == 0
    tied = Scores(np.zeros(20), np.zeros(20), cells)
    assert tied.auc().value == 0.5


def test_too_few_cells_are_not_judged(of_sources: NDArray[np.float32]) -> None:
    assert two_sample(of_sources[:4], of_sources[:4], np.arange(4)) is None


def test_a_sample_that_is_known_again_at_another_pitch_is_not_told_by_that() -> None:
    rng = np.random.default_rng(0)
    cells = np.repeat(np.arange(40), 2)
    of_sources, samples = (rng.normal(size=(n, 40)).astype(np.float32) for n in (80, 20))
    recordings = cells // 4 * 2 + np.arange(80) % 2  # two samples, played at four pitches each
    played = samples[recordings] + 0.1 * rng.normal(size=(80, 40)).astype(np.float32)
    told = two_sample(of_sources, played, cells, np.full(80, -1))
    fairly = two_sample(of_sources, played, cells, recordings)
    assert told is not None and told.auc().value > 0.8
    assert fairly is not None and 0.3 < fairly.auc().value < 0.65
    assert two_sample(of_sources, played, cells, np.zeros(80)) is None
