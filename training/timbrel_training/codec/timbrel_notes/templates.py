"""The movements that a codec knows: some real ones, one of which each note plays.

A note's code says more: behind those of the templates come those of the same templates in other alignments of
phases, which keep the movement of the levels alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.movement import (
    N_FEATURES,
    N_MOVING,
    N_POINTS,
    Movement,
    movement_features,
)
from timbrel_training.codec.timbrel_notes.note_parameters import N_PARTIALS
from timbrel_training.codec.timbrel_notes.phase_alignment import ALIGNED, FREE
from timbrel_training.codec.timbrel_notes.player import DECIBEL
from timbrel_training.codec.timbrel_notes.seeded_noise import counter_hash

FADE_IN = 8
"""Points over which a movement sets in, as long ..."""
WRAPPED_CYCLES = 0.5
"""Phases that wander farther than this are kept within a cycle."""
STILL = 0
"""The first template does not move."""


class Templates(nn.Module):
    """Movements back and forth, each note beginning at a place that follows its seed."""

    table: Tensor  # int8 [n_templates * N_POINTS, N_MOVING, 2]
    unit: Tensor  # [n_templates, N_MOVING, 2], what 1 in the table stands for: dB, cycles
    length: Tensor  # int64 [n_templates]
    features: Tensor  # [n_templates, n_features]
    partial: Tensor  # int64 [N_PARTIALS], whose movement each partial has

    def __init__(self, n_templates: int) -> None:
        super().__init__()
        self.n_templates = n_templates
        self.register_buffer("table", torch.zeros(n_templates * N_POINTS, N_MOVING, 2, dtype=torch.int8))
        self.register_buffer("unit", torch.zeros(n_templates, N_MOVING, 2))
        self.register_buffer("length", torch.full((n_templates,), N_POINTS))
        self.register_buffer("features", torch.zeros(n_templates, N_FEATURES))
        number = torch.arange(N_PARTIALS)
        half = N_MOVING // 2
        above = half + (number - N_MOVING) % half
        self.register_buffer("partial", torch.where(number < N_MOVING, number, above), persistent=False)

    def learn(self, movements: Sequence[Movement]) -> None:
        """Takes the movements most like those of groups of notes, by k-means of their features."""
        from sklearn.cluster import KMeans

        if not movements or self.n_templates == 1:
            return  # there is nothing to choose, or no place beside `STILL`
        features = np.stack([movement_features(movement) for movement in movements])
        n = min(self.n_templates - 1, len(np.unique(features, axis=0)))  # notes of one sample may move alike
        found = KMeans(n, n_init=1, random_state=0).fit(features)
        for number, centre in enumerate(found.cluster_centers_, start=1):
            inside = np.flatnonzero(found.labels_ == number - 1)
            distance = np.square(features[inside] - centre).sum(axis=1)
            # A long one, among those in the middle: it repeats later.
            nearest = inside[np.argsort(distance)[:4]]
            chosen = max(nearest, key=lambda note: len(movements[note]))
            self.set(number, movements[chosen])
        self.features[n + 1 :] = torch.inf

    def set(self, number: int, movement: Movement) -> None:
        """Makes a movement the template of this number. Small movements are kept the more finely: rounding
        would be heard as noise between the partials."""
        exact = torch.from_numpy(movement.astype(np.float32))
        steps = torch.diff(exact[:, :, 1], dim=0, prepend=exact[:1, :, 1])
        unwrapped = torch.cumsum(steps - torch.round(steps), dim=0)
        unwrapped -= (unwrapped.amax(dim=0) + unwrapped.amin(dim=0)) / 2
        wanders = unwrapped.abs().amax(dim=0) > WRAPPED_CYCLES
        phase = torch.where(wanders, exact[:, :, 1] * (127 / 128), unwrapped)
        both = torch.stack([exact[:, :, 0], phase], dim=2)
        unit = torch.clamp(both.abs().amax(dim=0) / 127, min=1e-6)
        unit[:, 1] = torch.where(wanders, 1 / 256 * (128 / 127), unit[:, 1])
        begin = number * N_POINTS
        self.table[begin : begin + len(both)] = torch.round(both / unit).clamp(-127, 127).to(torch.int8)
        self.unit[number] = unit
        self.length[number] = len(both)
        self.features[number] = torch.from_numpy(movement_features(movement))

    def nearest(self, features: NDArray[np.float32]) -> int:
        """Returns the template that a movement of these features is most like, by those that are known;
        `STILL` where none is."""
        away = self.described() - torch.from_numpy(features)
        return int(torch.square(away[:, ~np.isnan(features)]).sum(dim=1).argmin())

    def described(self) -> Tensor:
        """Returns the features [n_templates, N_FEATURES] of all templates, `STILL` among them; infinite ones
        of those that there are not."""
        still = torch.from_numpy(_of_stillness()).to(self.features.device)
        return torch.cat([still[None], self.features[1:]])

    def alignment(self, code: Tensor) -> Tensor:
        """Returns the alignment of phases that each code, int64 of any shape, stands for."""
        return torch.clamp(torch.div(code, self.n_templates, rounding_mode="floor"), FREE, ALIGNED)

    def forward(self, code: Tensor, seed: Tensor, point: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log2 of the amplitudes' factors, and phases in cycles, [B, T, points, N_PARTIALS].

        Of codes int64 [B, 1 + T], of the frame before and of each frame, seeds int64 [B] and points int64 [B,
        T, points] since the onset; `share` [points, 1] is how far each is from the movement of the frame
        before.
        """
        number = torch.remainder(code, self.n_templates)
        start = counter_hash(seed, torch.zeros_like(seed)[:, None], purpose=3)[:, :, None]
        before, after = (self._at(each, start, point) for each in (number[:, :-1], number[:, 1:]))
        level = before[..., 0] + (after[..., 0] - before[..., 0]) * share
        free = (self.alignment(code) == FREE).float()[:, :, None, None]
        begin, end = before[..., 1] * free[:, :-1], after[..., 1] * free[:, 1:]
        turn = end - begin
        phase = begin + (turn - torch.round(turn)) * share
        fade = torch.clamp((point.float() - FADE_IN) / FADE_IN, 0.0, 1.0)[..., None]
        return level[..., self.partial] * (DECIBEL * fade), phase[..., self.partial]

    def _at(self, number: Tensor, start: Tensor, point: Tensor) -> Tensor:
        """Returns dB and cycles [B, T, points, N_MOVING, 2] of templates [B, T]."""
        period = (2 * self.length[number] - 2)[..., None]
        place = torch.remainder(torch.remainder(start, period) + point, period)
        place = torch.minimum(place, period - place)
        return self.table[number[..., None] * N_POINTS + place].float() * self.unit[number][:, :, None]


@functools.cache
def _of_stillness() -> NDArray[np.float32]:
    """Returns the features of what does not move."""
    return movement_features(np.zeros((N_POINTS, N_MOVING, 2), dtype=np.float16))
