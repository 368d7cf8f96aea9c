"""Notes measured and played again: partials where they are, noise between them, levels over time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from timbrel_training.codec.timbrel_notes.analysed_notes import NoteAnalysis, analyse_note
from timbrel_training.codec.timbrel_notes.measurement import measure_note
from timbrel_training.codec.timbrel_notes.movement import (
    ENOUGH_POINTS,
    FEWEST_POINTS,
    GROUPS,
    MODULATION_HZ,
    Movement,
    measure_movement,
    movement_depth,
    movement_features,
)
from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    N_MOVING,
    N_MOVING_GROUPS,
    N_PARTIALS,
    N_VALUES,
    NOISE_SECONDS,
    NoteParameters,
    partial_groups,
    stiffness_of,
    stiffness_steps,
    valley_groups,
)
from timbrel_training.codec.timbrel_notes.partials import measure_partials
from timbrel_training.codec.timbrel_notes.phase_alignment import LEAST_COHERENCE, measure_coherence
from timbrel_training.codec.timbrel_notes.player import DECIBEL, NotePlayer, NoteTime
from timbrel_training.codec.timbrel_notes.stiffness import (
    LARGEST,
    measure_stiffness,
    number_at,
    stretched,
)
from timbrel_training.codec.timbrel_notes.templates import STILL, Templates

RATE = 48_000
Audio = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def string(
    hertz: float = 196.0,
    seconds: float = 1.6,
    held: float = 1.2,
    stiffness: float = 3e-4,
    n_partials: int = 20,
    noise: float = 0.0,
) -> tuple[Audio, Floats]:
    """A stiff string that decays and is damped, and the frequencies of its partials."""
    time = np.arange(round(seconds * RATE)) / RATE
    number = np.arange(1, n_partials + 1)
    frequency = number * hertz * np.sqrt(1 + stiffness * number**2) / math.sqrt(1 + stiffness)
    decay = (
        10 ** (-(0.3 + 0.1 * number) * time[:, None])
        * np.where(time < held, 1.0, 10 ** (-12 * (time - held)))[:, None]
    )
    audio = (decay * np.cos(2 * np.pi * frequency * time[:, None] + number**2) / number).sum(axis=1)
    audio += noise * np.random.default_rng(0).normal(size=len(time)) * decay[:, 0]
    return (0.2 * audio).astype(np.float32), frequency


def measured(audio: Audio, hertz: float, held: float) -> NoteAnalysis:
    return analyse_note(audio, RATE, 69 + 12 * math.log2(hertz / 440), held)[0]


def parameters(note: NoteAnalysis) -> NoteParameters:
    return NoteParameters.unpack(torch.from_numpy(note.values))


def test_every_partial_belongs_to_one_group() -> None:
    assert sorted(n for group in partial_groups() for n in group) == list(range(1, N_PARTIALS + 1))
    numbers = [n for group in valley_groups() for n in group]
    assert numbers == list(range(len(numbers)))


def test_partials_of_a_stiff_string_are_found_where_they_are() -> None:
    audio, frequency = string()
    partials = measure_partials(audio, np.full(len(audio), 196.0), RATE, 1.2)
    assert frequency[19] > 20.5 * 196.0  # the last lies nearer to the next multiple
    number = np.arange(1.0, 21.0)
    found = partials.offset[:20] + partials.fundamental * stretched(number, partials.stiffness.value)
    assert np.abs(1200 * np.log2(found / frequency)).max() < 1.0
    half_second = round(0.5 * RATE / 64)
    expected = 20 * np.log10(0.2 / number) - 20 * 0.5 * (0.3 + 0.1 * number)
    level = 20 * np.log10(np.abs(partials.amplitude[half_second, :20]))
    assert np.abs(level - expected).max() < 1.0
    held = slice(RATE // 4, RATE)
    assert np.square(partials.rest[held]).sum() < 1e-3 * np.square(audio[held]).sum()
    assert np.allclose(partials.sound + partials.rest, audio, atol=1e-6)


def test_what_a_stiff_string_lacks_is_not_measured_where_its_pitch_glides() -> None:
    """A plucked string whose pitch falls by 40 cents; nothing of it lies between 4 and 14 kHz."""
    time = np.arange(RATE) / RATE
    track = 110.0 * 2 ** (40 / 1200 * np.exp(-time / 0.1))
    turns = np.cumsum(track) / RATE
    place = stretched(np.arange(1.0, 25.0), 2e-4)
    audio = (0.2 / place * np.cos(2 * np.pi * turns[:, None] * place)).sum(axis=1)
    audio += 2e-5 * np.cos(2 * np.pi * 14_000.0 * time)
    partials = measure_partials(audio.astype(np.float32), track, RATE, 0.9)
    number = number_at(np.array([4_000.0, 13_500.0]) / 110.0, partials.stiffness.value).astype(int)
    assert partials.stiffness.value == pytest.approx(2e-4, rel=0.05) and number[1] - number[0] > 20
    lacking = np.abs(partials.amplitude[RATE // 20 // 64 : -RATE // 20 // 64, number[0] : number[1]])
    assert 20 * np.log10(lacking.max() / 0.2) < -90
    middle = slice(RATE // 20, -RATE // 20)
    window = np.hanning(len(audio[middle]))
    hertz = np.fft.rfftfreq(len(window), 1 / RATE)
    high = (hertz > 4_500) & (hertz < 13_000)
    for signal in (partials.sound, partials.rest):
        power, whole = (np.abs(np.fft.rfft(part[middle] * window)) ** 2 for part in (signal, audio))
        assert 10 * np.log10(power[high].sum() / whole.sum()) < -100


@pytest.mark.parametrize(("hertz", "stiffness"), [(65.0, 6e-5), (196.0, 3e-4), (523.0, 9e-4), (1047.0, 3e-3)])
def test_the_stiffness_of_a_string_is_measured(hertz: float, stiffness: float) -> None:
    audio, _ = string(hertz, stiffness=stiffness, n_partials=min(40, int(12_000 / hertz)), noise=1e-4)
    found = measure_stiffness(audio, 1.004 * hertz, RATE, 1.2)  # a tracker of harmonics hears it too high
    assert found.value == pytest.approx(stiffness, rel=0.05) and found.certainty == 1.0
    assert found.scale == pytest.approx(1 / 1.004, abs=1e-3)
    steps = stiffness_steps(found.value)
    assert float(stiffness_of(torch.tensor(steps))) == pytest.approx(found.value, rel=1e-6)


def test_what_is_harmonic_has_no_stiffness_and_what_has_few_partials_says_nothing() -> None:
    harmonic, few, noise = (
        string(stiffness=0.0)[0],
        string(n_partials=3)[0],
        np.random.default_rng(0).normal(size=RATE).astype(np.float32),
    )
    assert measure_stiffness(harmonic, 196.0, RATE, 1.2) == (0.0, 1.0, 1.0)
    for audio in (few, noise, 0 * noise, harmonic[:3000], noise[:0]):
        assert measure_stiffness(audio, 196.0, RATE, 1.2) == (0.0, 1.0, 0.0)


def test_sounds_of_all_kinds_have_a_stiffness_that_is_a_number() -> None:
    rng = np.random.default_rng(3)
    for trial in range(60):
        hertz = np.sort(rng.uniform(30, 12_000, rng.integers(1, 40)))
        audio = (
            np.sin(2 * np.pi * hertz * np.arange(RATE // 2)[:, None] / RATE).sum(axis=1).astype(np.float32)
        )
        found = measure_stiffness(audio, float(rng.uniform(8, 4000)), RATE, 0.5)
        assert 0 <= found.value <= LARGEST and abs(found.scale - 1) < 0.04 and 0 <= found.certainty <= 1, (
            trial
        )


def test_numbers_of_partials_and_their_places_are_inverse() -> None:
    number = np.linspace(0.0, 200.0, 401)
    for stiffness in (0.0, 1e-6, LARGEST):
        assert np.allclose(number_at(stretched(number, stiffness), stiffness), number, rtol=1e-9)


def test_partials_far_from_their_multiples_are_measured_as_strong_as_they_are() -> None:
    """A bell's, which are at no multiples of a high fundamental."""
    hertz, ratio = 880.0, np.array([1.0, 2.2, 2.8, 4.3])
    time = np.arange(RATE) / RATE
    audio = (0.1 * np.cos(2 * np.pi * hertz * ratio * time[:, None])).sum(axis=1).astype(np.float32)
    partials = measure_partials(audio, np.full(RATE, hertz), RATE, 0.9)
    level = 20 * np.log10(np.abs(partials.amplitude[RATE // 128, [0, 1, 2, 3]]) / 0.1)
    assert np.abs(level).max() < 0.3
    assert np.square(partials.rest[RATE // 4 : RATE // 2]).sum() < 1e-3 * np.square(audio[: RATE // 4]).sum()


def test_noise_is_what_the_partials_leave() -> None:
    audio, _ = string(noise=0.02)
    clean, _ = string()
    partials = measure_partials(audio, np.full(len(audio), 196.0), RATE, 1.2)
    held = slice(RATE // 4, RATE)
    noise = np.square((audio - clean)[held]).sum()
    # What lies nearest to the partials is taken for their movement.
    parts = np.square((partials.sound - clean)[held]).sum(), np.square(partials.rest[held]).sum()
    assert 0.2 * noise < min(parts) and abs(10 * np.log10(sum(parts) / noise)) < 2.0


def test_a_gap_in_the_noise_is_seen_behind_an_attack_that_has_none() -> None:
    """The attack's noise is 30 dB louder."""
    noise = np.random.default_rng(0).normal(size=round(1.6 * RATE))
    spectrum = np.fft.rfft(noise)
    hertz = np.fft.rfftfreq(len(noise), 1 / RATE)
    spectrum[(hertz > 5000) & (hertz < 5400)] *= 1e-2
    held = np.fft.irfft(spectrum, len(noise))
    attack = np.where(np.arange(len(noise)) < 0.05 * RATE, noise, 0.0)
    audio = string()[0] + (1e-3 * held + 3e-2 * attack).astype(np.float32)
    comb = parameters(measured(audio, 196.0, 1.2)).comb
    assert (comb[:, 24] < -15.0).all()  # around the 24th partial, which lies in the gap
    assert (comb[:, [20, 21]] > -10.0).all()


@pytest.mark.parametrize("fall", [6.0, 40.0, 80.0])
def test_levels_at_anchors_are_those_of_a_decay_however_steep(fall: float) -> None:
    """In dB a second. The mean around an anchor would be that of its beginning."""
    time = np.arange(3 * RATE) / RATE
    audio = (0.5 * 10 ** (-fall * time / 20) * np.sin(2 * np.pi * 440.0 * time)).astype(np.float32)
    found = parameters(measured(audio, 440.0, 1.3)).level[:, 0].numpy()
    expected = found[4] - fall * (np.array(LEVEL_SECONDS) - LEVEL_SECONDS[4])
    heard = (np.arange(len(found)) > 4) & (np.array(LEVEL_SECONDS) < 1.5) & (expected > -85.0)
    assert heard.sum() >= 10 and np.abs(found - expected)[heard].max() < 0.5


def test_noise_at_anchors_is_that_of_a_decay() -> None:
    time = np.arange(3 * RATE) / RATE
    hiss = 0.1 * 10 ** (-1.5 * time) * np.random.default_rng(0).normal(size=len(time))
    found = parameters(measured(hiss.astype(np.float32), 440.0, 2.9)).noise[:, 16:28].mean(dim=1).numpy()
    expected = found[3] - 30.0 * (np.array(NOISE_SECONDS) - NOISE_SECONDS[3])
    assert np.abs(found - expected)[3:].max() < 2.5


def test_a_tone_that_begins_at_once_is_no_noise() -> None:
    """A few per cent of a partial would be a loud click in all of a wide band."""
    time = np.arange(RATE) / RATE
    tone = np.sin(2 * np.pi * 830.0 * time) + 0.3 * np.sin(2 * np.pi * 1660.0 * time)
    audio = 0.3 * np.clip(time / 0.002, 0.0, 1.0) * 10 ** (-time) * tone
    burst = parameters(measured(audio.astype(np.float32), 830.0, 0.8)).burst
    click = np.where(time < 0.02, np.random.default_rng(0).normal(size=RATE), 0.0)
    clicked = parameters(measured((audio + 0.03 * click).astype(np.float32), 830.0, 0.8)).burst
    assert (burst[:, :3] < -29.0).all() and (burst[2] < -40.0).all()
    assert (clicked[2] > -36.0).all() and (clicked[:3, 8:] > -30.0).all()


def test_levels_after_the_release_are_relative_to_what_sounded() -> None:
    short, long = (string(seconds=held + 0.3, held=held)[0] for held in (0.6, 1.2))
    one, two = (parameters(measured(audio, 196.0, held)) for audio, held in ((short, 0.6), (long, 1.2)))
    # 100 ms after: damped by 24 dB, beside the string's own decay; as a mean of 85 to 125 ms.
    expected = -24.0 - 2.0 * (0.3 + 0.1 * torch.arange(1, 9))
    for found in (one, two):
        assert torch.allclose(found.release[5, :8], expected, atol=2.0)
    assert torch.allclose(one.release[:6, :8], two.release[:6, :8], atol=1.5)


def test_a_soft_note_is_the_loud_one_at_another_level() -> None:
    """Partials that it does not have lie as far below its loudest, and are as silent behind the release."""
    audio, _ = string(noise=1e-4)
    loud, soft = (measured(gain * audio, 196.0, 1.2) for gain in (1.0, 1e-3))
    assert soft.loudest_db == pytest.approx(loud.loudest_db - 60.0, abs=0.01)
    one, other = parameters(loud), parameters(soft)
    audible = one.level > -80.0
    assert audible.sum() > 100
    assert torch.allclose(one.level[audible], other.level[audible], atol=0.2, rtol=0.0)
    for name, tolerance in {"level": 1.0, "release": 0.5, "noise": 1.0, "noise_release": 1.0}.items():
        assert torch.allclose(getattr(one, name), getattr(other, name), atol=tolerance, rtol=0.0), name
    assert np.abs(soft.weights - loud.weights).max() < 0.05


def test_a_note_that_was_held_briefly_says_what_it_does_not_know() -> None:
    audio, _ = string(seconds=0.6, held=0.3)
    note = measured(audio, 196.0, 0.3)
    assert note.values.shape == note.weights.shape == (N_VALUES,)
    weights = NoteParameters.unpack(torch.from_numpy(note.weights)).level
    assert (weights[:10, 0] > 0.5).all() and (weights[13:] == 0).all()
    levels = parameters(note).level
    assert torch.equal(levels[13], levels[18])  # as far as it is known


@pytest.mark.parametrize("n_samples", [1, 500, 3000])
def test_notes_of_any_length_can_be_measured(n_samples: int) -> None:
    audio = string()[0][:n_samples]
    partials = measure_partials(audio, np.full(n_samples, 196.0), RATE, 1.2)
    unknown = np.full((2, N_MOVING_GROUPS), np.nan)
    assert np.isfinite(measure_note(audio, partials, unknown, RATE, 1.2)[0]).all()
    silent = measure_partials(0 * audio, np.full(n_samples, 196.0), RATE, 1.2)
    assert np.isfinite(measure_note(0 * audio, silent, unknown, RATE, 1.2)[0]).all()


def beating(hertz: float, seconds: float = 1.5) -> Movement:
    """The movement of a note, each of whose partials is two, so far apart."""
    time = np.arange(round(seconds * RATE)) / RATE
    number = np.arange(1, 9)
    audio = sum(
        np.cos(2 * np.pi * (220 * number + shift) * time[:, None]) @ (1 / number)
        for shift in (-hertz / 2, hertz / 2)
    )
    audio = (0.1 * np.asarray(audio)).astype(np.float32)
    partials = measure_partials(audio, np.full(len(audio), 220.0), RATE, seconds - 0.1)
    return measure_movement(partials, seconds - 0.1)


def test_the_coherence_of_partials_tells_a_pulse_from_phases_by_chance() -> None:
    """A sawtooth with vibrato, its partials scattered, drawn, or those of a stiff string."""
    time = np.arange(RATE) / RATE
    hertz = 110 * 2 ** (0.3 / 12 * np.sin(2 * np.pi * 5 * time))
    cycles = np.cumsum(hertz) / RATE
    number = np.arange(1, 31)[:, None]
    drawn = np.random.default_rng(0).uniform(-1, 1, size=(30, 1))

    def coherence(place: Floats, scatter: float) -> float:
        waves = np.sin(2 * np.pi * (place * cycles + scatter * drawn)) / number
        return measure_coherence(waves.sum(axis=0).astype(np.float32), hertz, RATE, 0.9)

    assert coherence(number, 0.0) > 0.97
    assert LEAST_COHERENCE[0] < coherence(number, 0.2) < LEAST_COHERENCE[1]
    assert coherence(number, 0.5) < LEAST_COHERENCE[0]
    assert coherence(stretched(number, 2e-4), 0.0) < LEAST_COHERENCE[0]


@pytest.mark.parametrize("n_samples", [1, 700, 40_000])
def test_what_has_no_partials_is_no_pulse(n_samples: int) -> None:
    noise = np.random.default_rng(0).normal(size=n_samples).astype(np.float32)
    for audio in (noise, 0 * noise, np.sin(np.arange(n_samples) / 20).astype(np.float32)):
        found = measure_coherence(audio, np.full(n_samples, 110.0), RATE, 0.6)
        assert 0 <= found < LEAST_COHERENCE[0]


def test_the_movement_of_two_voices_is_their_beating() -> None:
    movement = beating(5.0)
    level = movement[:, 0, 0].astype(float)
    spectrum = np.abs(np.fft.rfft((level - level.mean()) * np.hanning(len(level)), 4096))
    assert np.argmax(spectrum) * (RATE / 256) / 4096 == pytest.approx(5.0, abs=0.5)
    assert level.max() - level.min() > 20
    assert len(beating(5.0, seconds=0.1)) == 0 and np.isnan(movement_features(movement[:0])).all()


def test_templates_are_movements_of_the_notes_and_each_is_its_own_nearest() -> None:
    movements = [beating(hertz) for hertz in (1.5, 3.0, 6.0, 12.0)]
    templates = Templates(8)
    templates.learn(movements)
    chosen = [templates.nearest(movement_features(movement)) for movement in movements]
    assert len(set(chosen)) == 4 and STILL not in chosen
    assert templates.nearest(np.full(20, np.nan, dtype=np.float32)) == STILL
    twice = Templates(8)
    twice.learn([*movements, *movements])  # two notes of one sample, one of them softer
    assert len({twice.nearest(movement_features(movement)) for movement in movements}) == 4
    alone = Templates(1)
    alone.learn(movements)
    assert [alone.nearest(movement_features(movement)) for movement in movements] == [STILL] * 4


def test_a_short_note_moves_as_a_long_one_as_far_as_its_beginning_and_its_release_say() -> None:
    templates = Templates(8)
    templates.learn([beating(hertz) for hertz in (12.0, 17.0, 40.0)])
    for hertz in (12.0, 17.0, 40.0):
        long, short = beating(hertz), beating(hertz, seconds=0.35)
        assert ENOUGH_POINTS > len(short) > FEWEST_POINTS
        assert (
            templates.nearest(movement_features(short)) == templates.nearest(movement_features(long)) != STILL
        )
    known = ~np.isnan(movement_features(beating(12.0)[:10]))
    assert known.reshape(-1, len(MODULATION_HZ)).tolist() == [[False, True, True, True]] * (len(GROUPS) - 1)


def test_the_movement_behind_the_release_is_heard_where_the_note_is_short() -> None:
    time = np.arange(round(0.6 * RATE)) / RATE
    beats = np.sin(2 * np.pi * 220 * time) + np.sin(2 * np.pi * 232 * time)
    fading = np.where(time < 0.12, 1.0, 10 ** (-20 / 20 * (time - 0.12) / 0.4))
    audio = (0.1 * beats * fading).astype(np.float32)
    partials = measure_partials(audio, np.full(len(audio), 226.0), RATE, 0.12)
    movement = measure_movement(partials, 0.12)
    assert len(movement) > ENOUGH_POINTS
    level = movement[:, 0, 0].astype(float)
    spectrum = np.abs(np.fft.rfft((level - level.mean()) * np.hanning(len(level)), 4096))
    assert np.argmax(spectrum) * (RATE / 256) / 4096 == pytest.approx(12.0, abs=1.5)


def test_what_nobody_hears_does_not_move_and_a_steady_tone_has_the_still_template() -> None:
    time = np.arange(round(1.5 * RATE)) / RATE
    steady = 0.2 * sum(np.sin(2 * np.pi * 220 * n * time) / n for n in range(1, 9))
    steady = steady + 1e-6 * np.random.default_rng(0).normal(size=len(time))
    partials = measure_partials(steady.astype(np.float32), np.full(len(time), 220.0), RATE, 1.4)
    movement = measure_movement(partials, 1.4)
    assert np.abs(partials.amplitude[:, 20]).max() > 0  # noise alone
    assert not movement[:, 12:].any() and np.abs(movement[:, :8, 0]).max() < 0.2
    templates = Templates(8)
    templates.learn([beating(hertz) for hertz in (1.5, 3.0, 6.0)])
    assert templates.nearest(movement_features(movement)) == STILL


def test_a_decay_that_goes_on_behind_the_last_anchor_is_no_movement() -> None:
    time = np.arange(RATE * 3 // 2) / RATE
    audio = (0.5 * 10 ** (-2 * time) * np.sin(2 * np.pi * 440.0 * time)).astype(np.float32)
    held = 1.23  # the last anchor that is known lies at 0.9 s
    partials = measure_partials(audio, np.full(len(audio), 440.0), RATE, held)
    assert np.abs(measure_movement(partials, held)[:, 0, 0]).max() < 0.3


def moved(
    templates: Templates, number: int, seed: int, point: Tensor, deeper: float | Tensor = 0.0
) -> tuple[Tensor, Tensor]:
    """Levels and phases [1, 1, points, N_PARTIALS] that a template moves by where it is so many dB deeper."""
    template = torch.full((1, 2), number)
    depth = templates.depth[template] + deeper
    return templates(template, depth, torch.tensor([seed]), point, torch.ones(point.shape[2], 1))


def test_a_template_goes_back_and_forth_from_where_the_seed_says() -> None:
    movement = beating(3.0)
    templates = Templates(4)
    templates.set(1, movement)
    point = torch.arange(3 * len(movement))[None, None]
    one, two = (moved(templates, 1, seed, point)[0][0, 0, 16:, 0] for seed in (1, 2))
    period = 2 * len(movement) - 2
    assert torch.equal(one[:100], one[period : period + 100])
    assert not torch.equal(one, two)
    assert torch.allclose(one.sort().values[-1], two.sort().values[-1])
    level = torch.from_numpy(movement[:, 0, 0].astype(np.float32))
    known = torch.cat([level, level.flip(0)[1:-1]])
    steps = torch.stack([known.roll(-shift) for shift in range(period)])
    found = one[:period] * 20 * math.log10(2)
    best = (steps - found).abs().amax(dim=1).min()
    assert best < 0.3  # dB
    still = moved(templates, STILL, 1, point)[0]
    assert (still == 0).all() and still.shape[-1] == N_PARTIALS > N_MOVING > FEWEST_POINTS


def test_a_movement_is_as_deep_as_it_is_asked_to_be_where_that_is_quite_otherwise() -> None:
    movement = beating(3.0)
    templates = Templates(2)
    templates.set(1, movement)
    assert np.allclose(templates.depth[1, :, :8], movement_depth(movement)[:, :8], atol=0.1)
    point = torch.arange(len(movement))[None, None]
    (level, phase), (near, near_phase), (less, less_phase), (still, still_phase), (most, _) = (
        moved(templates, 1, 1, point, deeper) for deeper in (0.0, -11.0, -20 * math.log10(20), -80.0, 80.0)
    )
    assert torch.equal(near, level) and torch.equal(near_phase, phase)
    assert torch.allclose(less, level / 20, atol=1e-5) and torch.allclose(less_phase, phase / 20, atol=1e-5)
    assert still.abs().max() < 1e-3 and still_phase.abs().max() < 1e-3
    assert most.min() * 20 * math.log10(2) > -32.1 and most.max() * 20 * math.log10(2) < 12.1
    # In beats that are less loud a phase turns less: where a level is next to nothing it turns at once.
    shallow, turned = moved(templates, 1, 1, point, torch.tensor([-20 * math.log10(20), 0.0])[:, None])
    assert torch.equal(shallow, less) and torch.equal(turned, less_phase)


def test_partials_that_stand_still_in_a_template_move_as_their_neighbours_where_a_note_asks_for_it() -> None:
    movement = beating(3.0)
    assert not movement[:, 20:].any()
    templates = Templates(2)
    templates.set(1, movement)
    level = moved(templates, 1, 1, torch.arange(64, 200)[None, None])[0][0, 0]
    moving = int(np.flatnonzero((movement != 0).any(axis=(0, 2)))[-1])
    assert torch.equal(level[:, 40], level[:, moving]) and level[:, 40].std() > 0.01


def test_a_phase_that_wanders_can_be_made_less_deep_without_a_jump() -> None:
    points = np.arange(300)
    movement = np.zeros((300, N_MOVING, 2))
    cycles = points / 40 + 0.02 * np.sin(points)  # 7 cycles and a half beside where it was found
    movement[:, :, 1] = (cycles - np.round(cycles))[:, None]
    templates = Templates(2)
    templates.set(1, movement.astype(np.float16))
    phase = moved(templates, 1, 1, torch.arange(64, 900)[None, None], deeper=-24.0)[1][0, 0, :, 0]
    assert torch.diff(phase).abs().max() < 0.005
    assert phase.std() > 0.0005


def test_levels_of_partials_that_share_them_are_no_stairs() -> None:
    player = NotePlayer(RATE)
    groups = partial_groups()
    middle = torch.tensor([sum(numbers) / len(numbers) for numbers in groups])
    odd = torch.tensor([numbers[0] % 2 == 1 for numbers in groups])
    values = torch.zeros(1, 2, N_VALUES)
    NoteParameters.unpack(values).level[:] = torch.where(odd, -middle / 4, -20 - middle / 4)
    time = NoteTime(torch.full((1, 1, 1), 1.0), torch.zeros(1, 1, 1))
    level = player.amplitudes(NoteParameters.unpack(values), time, torch.ones(1, 1))[0, 0, 0] / DECIBEL
    number = torch.arange(1, N_PARTIALS + 1)
    exact = torch.where(number % 2 == 1, -number / 4, -20 - number / 4)
    inside = number < 200  # the last groups' halves lie beyond the last middle
    assert torch.allclose(level[inside], exact[inside], atol=1e-3)


def test_templates_of_before_depths_were_known_play_as_they_did_until_they_are_measured() -> None:
    templates, older = Templates(2), Templates(2)
    templates.set(1, beating(3.0))
    state = templates.state_dict()
    del state["depth"]
    older.load_state_dict(state)
    assert not older.depth.any()
    point = torch.arange(64, 200)[None, None]
    before, as_they_did = (moved(each, 1, 1, point)[0] for each in (templates, older))
    assert torch.equal(before, as_they_did)
    older.measure_depths()
    assert torch.allclose(older.depth, templates.depth, atol=0.1)
    assert torch.equal(older.features, templates.features)
    assert torch.allclose(moved(older, 1, 1, point)[0], before, atol=0.02)
