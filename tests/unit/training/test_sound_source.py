"""The codec's sound source: partials of any frequency, noise that follows the seed, bends and levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.signal import fftconvolve, welch
from torch import Tensor

from timbrel_training.codec.timbrel_notes.oscillator_bank import OscillatorBank
from timbrel_training.codec.timbrel_notes.sound_source import SoundSource, SourceControls

RATE, HOP, SUB_HOP, N_POINTS = 48_000, 1280, 256, 5
N_GAINS = 16
SECOND = 38
"""Frames, rounded up."""

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module", autouse=True)
def without_gradients() -> object:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def source() -> SoundSource:
    return make_source(24)


def make_source(n_partials: int) -> SoundSource:
    return SoundSource(RATE, n_partials, N_GAINS).eval()


def steady(n_frames: int, n_partials: int, n_notes: int = 1) -> SourceControls:
    """Harmonics of 110 Hz at 0.1, white noise at 1, neither bent nor scaled."""
    shape = n_notes, N_POINTS * n_frames, n_partials
    frames = torch.zeros(n_notes, n_frames)
    return SourceControls(
        frequency=(110.0 * torch.arange(1, n_partials + 1)).expand(shape),
        amplitude=torch.full(shape, 0.1),
        offset=torch.zeros(shape),
        noise_bins=torch.ones(n_notes, n_frames, HOP),
        noise_gains=torch.ones(n_notes, shape[1], N_GAINS),
        cents=frames,
        level_db=frames,
    )


def restless(n_frames: int, n_partials: int, n_notes: int) -> SourceControls:
    """All of it moves, point by point and frame by frame; some partials lie above half the sample rate."""
    torch.manual_seed(3)
    shape = n_notes, N_POINTS * n_frames, n_partials
    return SourceControls(
        frequency=torch.exp(torch.linspace(3.5, 10.3, n_partials)) * (0.99 + 0.02 * torch.rand(shape)),
        amplitude=torch.rand(shape) / n_partials,
        offset=4 * torch.rand(shape) - 2,
        noise_bins=torch.rand(n_notes, n_frames, HOP),
        noise_gains=0.3 * torch.rand(n_notes, shape[1], N_GAINS),
        cents=900 * torch.randn(n_notes, n_frames),
        level_db=3 * torch.randn(n_notes, n_frames),
    )


def chunk(controls: SourceControls, start: int, end: int) -> SourceControls:
    """The frames from `start` to `end`."""
    cut = {}
    for field in fields(controls):
        per_frame = 1 if field.name in ("cents", "level_db", "noise_bins") else N_POINTS
        cut[field.name] = getattr(controls, field.name)[:, per_frame * start : per_frame * end]
    return SourceControls(**cut)


def play(
    source: SoundSource, seeds: Sequence[int], controls: SourceControls, lengths: Sequence[int] = ()
) -> Tensor:
    """Audio [B, T * HOP], in chunks of these lengths; none: in one."""
    pieces, start = [], 0
    state = source.initial_state(len(seeds))
    for length in lengths or (controls.cents.shape[1],):
        audio, state = source(torch.tensor(seeds), chunk(controls, start, start + length), state)
        pieces.append(audio)
        start += length
    return torch.cat(pieces, dim=1)


def noise(source: SoundSource, seed: int, seconds: float, gains: Tensor | None = None) -> Floats:
    """The noise alone, after the first segment, which rises."""
    controls = steady(round(seconds * RATE / HOP), source.number.shape[1] - 1)
    gains = controls.noise_gains if gains is None else gains
    controls = replace(controls, amplitude=0 * controls.amplitude, noise_gains=gains)
    return play(source, [seed], controls)[0, SUB_HOP:].double().numpy()


def tones(source: SoundSource, controls: SourceControls, seed: int = 1) -> Floats:
    """The partials alone."""
    silent = replace(controls, noise_gains=0 * controls.noise_gains)
    return play(source, [seed], silent)[0].double().numpy()


def plain_oscillators(frequency: Floats, amplitude: Floats, offset: Floats, start: Floats) -> Floats:
    """Partials [J, P] sample by sample, in float64, as `OscillatorBank` describes them."""
    ramp = np.arange(1, SUB_HOP + 1)[:, None] / SUB_HOP
    last, last_amplitude, last_offset, phase = frequency[0], np.zeros_like(start), offset[0], start
    segments = []
    for hertz, level, shift in zip(frequency, amplitude, offset, strict=True):
        advance = (last + hertz) / 2 * SUB_HOP / RATE
        change = (shift - last_offset + 0.5) % 1.0 - 0.5
        turns = phase + last_offset + (advance + change) * ramp
        weights = last_amplitude + (level - last_amplitude) * ramp
        segments.append((weights * np.cos(2 * np.pi * turns)).sum(axis=1))
        last, last_amplitude, last_offset, phase = hertz, level, shift, phase + advance
    return np.concatenate(segments)


def decibels(error: Floats, reference: Floats) -> float:
    return float(10 * np.log10(np.mean(error**2) / np.mean(reference**2)))


def correlation(one: Floats, other: Floats) -> Floats:
    """At all lags, relative to the two signals' powers; the middle is lag 0."""
    return fftconvolve(one, other[::-1]) / np.sqrt(np.sum(one**2) * np.sum(other**2))


def test_the_bank_plays_what_plain_oscillators_play() -> None:
    rng = np.random.default_rng(0)
    n_points, n_partials = 60, 224
    bank = OscillatorBank(RATE, SUB_HOP)
    frequency = np.sort(rng.uniform(20, 22_000, n_partials)) * rng.uniform(0.97, 1.03, (n_points, n_partials))
    amplitude = np.where(rng.random(n_partials) < 0.2, 0, rng.uniform(-1, 1, (n_points, n_partials)))
    amplitude, offset = (x.astype(np.float32) for x in (amplitude, rng.uniform(-3, 3, frequency.shape)))
    start = rng.random(n_partials).astype(np.float32)
    fade = np.clip((0.98 * RATE / 2 - frequency) / (0.05 * RATE / 2), 0, 1)
    given = (torch.tensor(x[None]) for x in (frequency, amplitude, offset, start))
    audio, _ = bank(*given, bank.initial_state(1, n_partials))
    reference = plain_oscillators(frequency, amplitude * fade, offset.astype(float), start.astype(float))
    assert decibels(audio[0].numpy() - reference, reference) < -90


def test_partials_that_are_left_out_are_silent_and_come_back_in_phase() -> None:
    bank = OscillatorBank(RATE, SUB_HOP)
    frequency = torch.tensor([300.0, 5000.0]).double().repeat_interleave(40).expand(1, 30, 80).contiguous()
    amplitude = torch.ones(1, 30, 80)
    amplitude[:, 10:20, 40:] = 0
    start, offset = torch.zeros(1, 80), torch.zeros(1, 30, 80)
    whole, _ = bank(frequency, amplitude, offset, start, bank.initial_state(1, 80))
    state, pieces, n_worked_out = bank.initial_state(1, 80), [], []
    for part in (slice(0, 11), slice(11, 20), slice(20, 30)):
        before = torch.cat([state.last_amplitude[:, None], amplitude[:, part]], dim=1)
        n_worked_out.append(bank._n_audible(before))
        audio, state = bank(frequency[:, part], amplitude[:, part], offset[:, part], start, state)
        pieces.append(audio)
    assert n_worked_out == [80, 48, 80]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=1e-4, rtol=0)


def test_phases_are_kept_for_ten_minutes() -> None:
    bank, n_partials, n_points = OscillatorBank(RATE, SUB_HOP), 2, 2500
    frequency = torch.tensor([110.017, 9_871.3]).expand(1, n_points, n_partials).double()
    ones, zeros = torch.ones(1, n_points, n_partials), torch.zeros(1, n_points, n_partials)
    state = bank.initial_state(1, n_partials)
    n_chunks = 600 * RATE // (SUB_HOP * n_points)
    for _ in range(n_chunks):
        audio, state = bank(frequency, ones, zeros, zeros[:, 0], state)
    n_samples = n_points * SUB_HOP
    sample = np.arange(1, n_samples + 1) + (n_chunks - 1) * n_samples
    turns = sample[:, None] * frequency[0, 0].numpy().astype(np.longdouble) / RATE
    reference = np.cos(2 * np.pi * (turns % 1).astype(float)).sum(axis=1)
    assert decibels(audio[0].numpy() - reference, reference) < -90


@pytest.mark.parametrize("lengths", [[1] * 23, [5, 1, 9, 8]])
def test_a_stream_of_any_chunks_is_the_whole_note(source: SoundSource, lengths: list[int]) -> None:
    controls = restless(23, 24, n_notes=2)
    whole = play(source, [5, -6], controls)
    assert whole.shape == (2, 23 * HOP)
    torch.testing.assert_close(play(source, [5, -6], controls, lengths), whole, atol=1e-5, rtol=0)


def test_nothing_is_heard_before_its_point(source: SoundSource) -> None:
    """Samples up to those of a segment before a point do not know it: exactly causal, 256 samples late."""
    controls = restless(8, 24, n_notes=1)
    other = chunk(restless(16, 24, n_notes=1), 8, 16)
    mixed = {
        field.name: torch.cat(
            [getattr(chunk(controls, 0, 4), field.name), getattr(other, field.name)[:, :n]], 1
        )
        for field, n in zip(fields(controls), (20, 20, 20, 4, 20, 4, 4), strict=True)
    }
    difference = (play(source, [1], SourceControls(**mixed)) - play(source, [1], controls)).abs()[0]
    assert float(difference[: 4 * HOP].max()) < 1e-6 < float(difference[4 * HOP :].max())
    assert source.delay_samples == SUB_HOP < 0.01 * RATE


def test_a_company_of_notes_changes_nothing(source: SoundSource) -> None:
    controls = restless(6, 24, n_notes=3)
    together = play(source, [5, 6, 7], controls)
    for row in range(3):
        own = SourceControls(**{k: v[row : row + 1] for k, v in vars(controls).items()})
        torch.testing.assert_close(play(source, [5 + row], own)[0], together[row], atol=1e-5, rtol=0)


def test_the_same_seed_gives_the_same_bytes(source: SoundSource) -> None:
    one, again, other = (play(source, [seed], steady(10, 24)).numpy().tobytes() for seed in (7, 7, 8))
    assert one == again != other


@pytest.mark.parametrize("other", [2, -1, 2**31, 2**63 - 1])
def test_noise_of_two_seeds_has_nothing_in_common(source: SoundSource, other: int) -> None:
    one, two = noise(source, 1, 2.0), noise(source, other, 2.0)
    assert np.abs(correlation(one, two)).max() < 0.1


def test_noise_is_flat_and_even_and_does_not_repeat(source: SoundSource) -> None:
    audio = noise(source, 1, 20.0)
    hertz, density = welch(audio, RATE, nperseg=2048)
    inner = density[(hertz > 40) & (hertz < 23_900)] * RATE / 2
    assert np.abs(10 * np.log10(inner)).max() < 1
    first = np.mean([noise(source, seed, 0.1)[:1024] ** 2 for seed in range(60)])
    assert abs(10 * np.log10(first)) < 0.5
    lags = np.abs(correlation(audio, audio))
    lags[len(audio) - 1] = 0
    assert lags.max() < 0.1


def test_noise_follows_its_fine_spectrum(source: SoundSource) -> None:
    """One loud band of three bins at 2 kHz: 40 dB are gone within 150 Hz."""
    bins = torch.full((1, 4 * SECOND, HOP), 1e-4)
    bins[:, :, 106:109] = 1.0
    controls = replace(steady(4 * SECOND, 24), amplitude=torch.zeros(1, 20 * SECOND, 24), noise_bins=bins)
    hertz, density = welch(play(source, [1], controls)[0].numpy(), RATE, "hann", nperseg=8192)
    peak = hertz[np.argmax(density)]
    aside = density[(hertz < peak - 150) | (hertz > peak + 150)].max()
    assert 1900 < peak < 2100 and aside < 1e-4 * density.max()


def test_noise_starts_within_a_segment_and_its_gains_keep_to_their_bands(source: SoundSource) -> None:
    gains = torch.zeros(1, 20 * N_POINTS, N_GAINS)
    gains[:, 50:, 12:] = 1.0
    power = np.mean([noise(source, seed, 20 * HOP / RATE, gains) ** 2 for seed in range(40)], axis=0)
    before, after = power[: 49 * SUB_HOP], power[50 * SUB_HOP :]  # the first segment is left out
    assert before.max() == 0 and after.mean() > 0.3
    hertz, density = welch(noise(source, 1, 20 * HOP / RATE, gains)[51 * SUB_HOP :], RATE, nperseg=1024)
    assert density[hertz < 4000].max() < 1e-4 * density[hertz > 12_000].mean()


def test_start_phases_follow_the_seed_and_are_spread_evenly() -> None:
    source = make_source(224)
    controls = steady(SECOND, 224)
    spectra = []
    for seed in (1, 2, 1):
        held = tones(source, controls, seed)[-24_000:]
        spectra.append(np.fft.rfft(held)[55 * np.arange(1, 200)])
    one, two, again = (np.angle(spectrum) for spectrum in spectra)
    assert np.array_equal(one, again)
    for turns in (one - two, one):
        assert abs(np.exp(1j * turns).mean()) < 0.2


def test_a_bend_glides_through_its_frame_and_moves_all_partials(source: SoundSource) -> None:
    controls = steady(2 * SECOND, 24)
    cents = torch.zeros(1, 2 * SECOND)
    cents[:, SECOND:] = 700.0
    bent = replace(controls, cents=cents, frequency=controls.frequency + 13.0)  # not harmonic
    audio = tones(source, bent)
    spectrum = np.abs(np.fft.rfft(audio[-RATE // 2 :] * np.hanning(RATE // 2)))
    loud = np.flatnonzero((spectrum[1:-1] > spectrum[:-2]) & (spectrum[1:-1] > spectrum[2:])) + 1
    loud = np.sort(loud[np.argsort(spectrum[loud])[-24:]]) * 2
    asked = (110 * np.arange(1, 25) + 13) * 2 ** (7 / 12)
    assert np.abs(loud - asked).max() <= 2
    steps = torch.tensor([0.0, 140.0, 280.0, 420.0, 560.0, 700.0])
    glide = source._glide(cents, torch.zeros(1), torch.ones(1, dtype=torch.bool))
    torch.testing.assert_close(glide[0, N_POINTS * SECOND - 1 :][:6], steps)
    held = tones(source, replace(controls, cents=torch.full_like(cents, 9000.0)))
    assert np.array_equal(held, tones(source, replace(controls, cents=torch.full_like(cents, 2400.0))))


def test_a_level_moves_partials_and_noise_alike(source: SoundSource) -> None:
    controls = steady(20, 24)
    quiet = replace(controls, level_db=torch.full((1, 20), -12.0))
    loud, soft = play(source, [1], controls), play(source, [1], quiet)
    torch.testing.assert_close(soft, loud * 10 ** (-12 / 20), atol=1e-6, rtol=1e-4)
