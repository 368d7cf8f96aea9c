"""Plays a note's parameters: they become what the sound source plays by, control point by control point."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysis import spread_matrix
from timbrel_training.codec.timbrel_notes.note_parameters import (
    BURST_SECONDS,
    LEVEL_SECONDS,
    N_BURST_BANDS,
    N_FINE_BANDS,
    N_NOISE_BANDS,
    N_OFFSETS,
    N_PARTIALS,
    NOISE_RELEASE_SECONDS,
    NOISE_SECONDS,
    ONSET_GAINS,
    ONSET_SECONDS,
    RELEASE_SECONDS,
    NoteParameters,
    group_of_number,
    partial_groups,
    stiffness_of,
    valley_groups,
)
from timbrel_training.codec.timbrel_notes.seeded_noise import N_BINS

RELEASE_RAMP_SECONDS = 0.006
"""Over this long a release sets in."""
BURST_END_SECONDS = (0.05, 0.07)
"""Between these the noise that a note begins with gives way to the noise it goes on with."""
HIGHEST_DB = 6.0
"""No partial and no bin of the noise is louder beside the note's loudness: whatever a header's codes say."""
HIGHEST_COMB_DB = 24.0
"""Nor does the noise's fine spectrum stand out by more."""
STEADY_FALL, PLAIN_FALL = 1.5, 2.5
"""Behind its last anchor a note stays as it is where it fell by less than the first before, dB a second, all
partials together; it goes on falling where it fell by more than the second."""
FALL_ANCHORS = 4
"""The last so many anchors of level tell how it fell: three seconds, of which a swell is no large part."""
DECIBEL = math.log2(10.0) / 20.0
"""dB to powers of two of an amplitude."""


@dataclass
class NoteTime:
    """Where each control point lies in its note, [B, T, points], seconds."""

    onset: Tensor
    """Since the onset."""
    release: Tensor
    """Since the release; 0 or less while the key is held."""

    @property
    def held(self) -> Tensor:
        """Since the onset, up to the release."""
        return self.onset - torch.clamp(self.release, min=0.0)


class Anchors(nn.Module):
    """Interpolates linearly between values at anchors in time, and goes on falling behind the last."""

    seconds: Tensor

    def __init__(self, seconds: Sequence[float]) -> None:
        super().__init__()
        self.first, self.last, self.last_gap = seconds[0], seconds[-1], seconds[-1] - seconds[-2]
        self.register_buffer("seconds", torch.tensor(seconds), persistent=False)

    def forward(self, values: Tensor, time: Tensor, share: Tensor, falls: Tensor | None = None) -> Tensor:
        """Returns values [B, T, points, N] at times [B, T, points], of those at the anchors, of the frame
        before and of each frame: [B, 1 + T, n, N].

        `share` [points, 1] is how far each point is on the way from those of the frame before; `falls` [B, 1
        + T, 1] is what the fall behind the last anchor is multiplied by.
        """
        anchors = self.seconds
        inside = torch.clamp(time, min=self.first, max=self.last)[..., None]
        gap = anchors[1:] - anchors[:-1]
        passed = torch.clamp((inside - anchors[:-1]) / gap, 0.0, 1.0)  # of each gap
        one, zero = torch.ones_like(passed[..., :1]), torch.zeros_like(passed[..., :1])
        weights = torch.cat([one, passed], dim=-1) - torch.cat([passed, zero], dim=-1)
        beyond = torch.clamp(time - self.last, min=0.0)[..., None] / self.last_gap
        fall = torch.clamp(values[:, :, -1:] - values[:, :, -2:-1], max=0.0)
        fall = fall if falls is None else fall * falls[..., None]
        # The frame before and the frame itself as anchors of one product.
        weights, beyond = (
            torch.cat([(1 - share) * each, share * each], dim=-1) for each in (weights, beyond)
        )
        values, fall = (torch.cat([each[:, :-1], each[:, 1:]], dim=2) for each in (values, fall))
        return weights @ values + beyond @ fall


class NotePlayer(nn.Module):
    """Parameters, fundamental and time -> frequencies, amplitudes and the noise's gains."""

    group_below: Tensor  # [N_PARTIALS], int64: the groups whose levels a partial's lies between, ...
    group_above: Tensor
    above_share: Tensor  # [N_PARTIALS], ... and how far it is on the way from the first to the second
    number: Tensor  # [N_PARTIALS], 1, 2, 3, ...
    band_weights: Tensor  # [N_BURST_BANDS, N_NOISE_BANDS]
    bins: Tensor  # [N_BINS], Hz
    fine_weights: Tensor  # [N_FINE_BANDS, N_BINS]
    bin_weights: Tensor  # [N_NOISE_BANDS, N_BINS]
    group_at: Tensor  # int64, the group of the noise around each partial

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        self.level = Anchors(LEVEL_SECONDS)
        self.release = Anchors(RELEASE_SECONDS)
        self.noise = Anchors(NOISE_SECONDS)
        self.noise_release = Anchors(NOISE_RELEASE_SECONDS)
        self.burst = Anchors(BURST_SECONDS)
        ends = [ONSET_SECONDS * (n + 1) for n in range(ONSET_GAINS)]
        self.onset = Anchors([*ends, ends[-1] + 0.01])
        below, above, above_share = _between_groups()
        self.register_buffer("group_below", below, persistent=False)
        self.register_buffer("group_above", above, persistent=False)
        self.register_buffer("above_share", above_share, persistent=False)
        self.register_buffer("number", torch.arange(1, N_PARTIALS + 1).float(), persistent=False)
        position = torch.linspace(0, N_BURST_BANDS - 1, N_NOISE_BANDS)
        spread = torch.clamp(1 - (position[None] - torch.arange(N_BURST_BANDS)[:, None]).abs(), min=0.0)
        self.register_buffer("band_weights", spread, persistent=False)
        self.register_buffer("bins", torch.arange(N_BINS) * (sample_rate / 2 / N_BINS), persistent=False)
        bins = spread_matrix(N_FINE_BANDS, N_BINS + 1, sample_rate)[:, :-1]
        self.register_buffer("fine_weights", bins.contiguous(), persistent=False)
        bins = spread_matrix(N_NOISE_BANDS, N_BINS + 1, sample_rate)[:, :-1]
        self.register_buffer("bin_weights", bins.contiguous(), persistent=False)
        group_at = torch.tensor(group_of_number(valley_groups()))
        self.register_buffer("group_at", group_at, persistent=False)

    def frequencies(self, parameters: NoteParameters, hertz: Tensor, harmonic: Tensor) -> Tensor:
        """Returns Hz, float64 [B, T, points, N_PARTIALS], of fundamentals in Hz [B, T, points]; multiples of
        them where partials are `harmonic` [B, T]."""
        cents = torch.clamp(parameters.offset * (20.0 / self.number[:N_OFFSETS]), -1200.0, 1200.0)
        # In float64, so that runtimes agree: whatever they differ by, a phase would sum.
        beside = torch.exp2(cents.double() / 1200.0)
        rest = torch.ones_like(beside[..., :1]).expand(*beside.shape[:-1], N_PARTIALS - N_OFFSETS)
        stiffness = stiffness_of(parameters.stiffness)
        number = self.number.double()
        place = number * torch.sqrt((1.0 + stiffness * number**2) / (1.0 + stiffness))
        place = torch.where(harmonic[..., None], number, place * torch.cat([beside, rest], dim=-1))
        return hertz[..., None] * place[:, :, None]

    def amplitudes(self, parameters: NoteParameters, time: NoteTime, share: Tensor) -> Tensor:
        """Returns log2 of the amplitudes [B, T, points, N_PARTIALS], of the parameters of the frame before
        and of each frame, [B, 1 + T, ...]; `share` [points, 1] is how far each point is on the way between
        them."""
        falls = self._falls(parameters)
        # They are 1 at most: were the last more, what falls behind it would fall for ever.
        onset = torch.clamp(parameters.onset, max=0.0)
        onset = torch.cat([onset, torch.zeros_like(onset[..., :1])], dim=-1)[..., None]
        levels = self.level(parameters.level, time.held, share, falls)
        levels = levels + self.release(parameters.release, time.release, share) * _ramp(time)
        levels = torch.clamp(levels + self.onset(onset, time.onset, share), max=HIGHEST_DB)
        below = levels[..., self.group_below]
        return DECIBEL * (below + (levels[..., self.group_above] - below) * self.above_share)

    def noise_gains(self, parameters: NoteParameters, time: NoteTime, share: Tensor) -> Tensor:
        """Returns log2 of the noise's gains in its bands [B, T, points, N_NOISE_BANDS], upon its spectrum.

        The arguments are those of `amplitudes`.
        """
        steady = self._steady_noise(parameters)
        falls = self._falls(parameters)
        levels = self.noise(parameters.noise, time.held, share, falls)
        levels = levels + self.noise_release(parameters.noise_release, time.release, share) * _ramp(time)
        burst = self.burst(parameters.burst, time.onset, share) @ self.band_weights
        begin, end = BURST_END_SECONDS
        begun = torch.clamp((time.onset - begin) / (end - begin), 0.0, 1.0)[..., None]
        levels = torch.clamp(burst + (levels - burst) * begun, max=HIGHEST_DB)
        return DECIBEL * (levels - steady[:, 1:, None])

    def noise_spectrum(self, parameters: NoteParameters, hertz: Tensor) -> Tensor:
        """Returns log2 of the noise's gains in its bins [B, T, N_BINS], of fundamentals in Hz [B, T]."""
        stiffness = stiffness_of(parameters.stiffness).float()
        square = (self.bins / hertz[..., None]) ** 2 * (1.0 + stiffness)
        # The number, fractions too, of a partial that would lie there.
        place = torch.sqrt(2.0 * square / (1.0 + torch.sqrt(1.0 + 4.0 * stiffness * square)))
        nearest = torch.round(place)
        away = 2.0 * torch.abs(place - nearest)
        last = self.group_at.shape[0] - 1
        near = self.group_at[torch.clamp(nearest.long(), max=last)]
        between = self.group_at[torch.clamp(place.long(), max=last)]
        at_partials = torch.gather(parameters.comb[:, :, 0], 2, near)
        in_valleys = torch.gather(parameters.comb[:, :, 1], 2, between)
        comb = at_partials + (in_valleys - at_partials) * away
        bands = self._steady_noise(parameters) @ self.bin_weights
        fine = torch.clamp(comb + parameters.fine @ self.fine_weights, max=HIGHEST_COMB_DB)
        return DECIBEL * (bands + fine)

    def _falls(self, parameters: NoteParameters) -> Tensor:
        """Returns [B, T, 1]: 0 where the note is steady at its last anchors, 1 where it falls."""
        levels = torch.clamp(parameters.level[:, :, -FALL_ANCHORS:], max=HIGHEST_DB)
        power = torch.log2(torch.exp2(levels * (2 * DECIBEL)).sum(dim=-1) + 1e-12)
        seconds = LEVEL_SECONDS[-1] - LEVEL_SECONDS[-FALL_ANCHORS]
        fall = (power[:, :, :1] - power[:, :, -1:]) / (2 * DECIBEL * seconds)
        return torch.clamp((fall - STEADY_FALL) / (PLAIN_FALL - STEADY_FALL), 0.0, 1.0)

    def _steady_noise(self, parameters: NoteParameters) -> Tensor:
        """Returns dB [B, T, N_NOISE_BANDS]: what of the noise is a matter of its spectrum, where neighbouring
        bands may lie far apart, and not of gains that change in time."""
        return torch.clamp(parameters.noise[:, :, 1:].amax(dim=2), max=HIGHEST_DB)


def _ramp(time: NoteTime) -> Tensor:
    return torch.clamp(time.release / RELEASE_RAMP_SECONDS, 0.0, 1.0)[..., None]


def _between_groups() -> tuple[Tensor, Tensor, Tensor]:
    """Returns for each partial the two groups of its own parity that it lies between, and how far it is on
    the way from the middle of the first to that of the second, [N_PARTIALS] each: levels would be stairs
    else."""
    groups = partial_groups()
    between = []
    for number in range(1, N_PARTIALS + 1):
        alike = [group for group, numbers in enumerate(groups) if (numbers[0] - number) % 2 == 0]
        middles = [sum(groups[group]) / len(groups[group]) for group in alike]
        above = min(max(bisect.bisect_left(middles, number), 1), len(middles) - 1)
        low, high = middles[above - 1], middles[above]
        between.append((alike[above - 1], alike[above], min(max((number - low) / (high - low), 0.0), 1.0)))
    lower, upper, share = zip(*between, strict=True)
    return torch.tensor(lower), torch.tensor(upper), torch.tensor(share)
