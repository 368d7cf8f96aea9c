"""The movements that a codec knows: some real ones, one of which each note plays.

A template says how a note's partials move beside one another, and the note's header how deep the movement of
each is, which counts where a partial of the template moves quite otherwise. A note's code says more: behind
those of the templates come those of the same templates in other alignments of phases, which keep the movement
of the levels alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.movement import (
    GROUP_OF_MOVING,
    LEAST_DB,
    MOST_DB,
    N_FEATURES,
    N_POINTS,
    RATE,
    Movement,
    movement_depth,
    movement_features,
)
from timbrel_training.codec.timbrel_notes.note_parameters import N_MOVING, N_MOVING_GROUPS, N_PARTIALS
from timbrel_training.codec.timbrel_notes.partials import gaussian_deviation
from timbrel_training.codec.timbrel_notes.phase_alignment import ALIGNED, FREE
from timbrel_training.codec.timbrel_notes.player import DECIBEL
from timbrel_training.codec.timbrel_notes.seeded_noise import counter_hash

FADE_IN = 8
"""Points over which a movement sets in, as long ..."""
WANDER_CYCLES, WANDER_HZ = 0.5, 1.5
"""Where a phase wanders farther than the first, what it does more slowly than the second is left out: a phase
that is kept within a cycle could not be made less deep."""
AS_IT_IS_DB = 12.0
"""A movement is left as deep as it is where a header says no more than so much else, and made as deep as it
says from twice as much on: notes all of whose partials move as much as they are told to are more easily told
from real ones."""
MOST_DEEPENED_DB = 12.0
"""No movement is made deeper by more."""
STILL = 0
"""The first template does not move."""


class Templates(nn.Module):
    """Movements back and forth, each note beginning at a place that follows its seed."""

    table: Tensor  # int8 [n_templates * N_POINTS, N_MOVING, 2]
    unit: Tensor  # [n_templates, N_MOVING, 2], what 1 in the table stands for: dB, cycles
    length: Tensor  # int64 [n_templates]
    features: Tensor  # [n_templates, n_features]
    depth: Tensor  # [n_templates, 2, N_MOVING_GROUPS], dB as `movement_depth` has them
    group: Tensor  # int64 [N_MOVING], the group that each partial is in
    partial: Tensor  # int64 [N_PARTIALS], whose movement each partial has

    def __init__(self, n_templates: int) -> None:
        super().__init__()
        self.n_templates = n_templates
        self.register_buffer("table", torch.zeros(n_templates * N_POINTS, N_MOVING, 2, dtype=torch.int8))
        self.register_buffer("unit", torch.zeros(n_templates, N_MOVING, 2))
        self.register_buffer("length", torch.full((n_templates,), N_POINTS))
        self.register_buffer("features", torch.zeros(n_templates, N_FEATURES))
        self.register_buffer("depth", torch.zeros(n_templates, 2, N_MOVING_GROUPS))
        self.register_buffer("group", torch.from_numpy(GROUP_OF_MOVING), persistent=False)
        number = torch.arange(N_PARTIALS)
        half = N_MOVING // 2
        above = half + (number - N_MOVING) % half
        self.register_buffer("partial", torch.where(number < N_MOVING, number, above), persistent=False)
        self.register_load_state_dict_pre_hook(_as_deep_as_they_are)

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

    def set(self, number: int, movement: NDArray[np.floating]) -> None:
        """Makes a movement the template of this number. Partials that do not move in it move as their nearest
        neighbours do. Small movements are kept the more finely: rounding would be heard as noise between the
        partials."""
        both = _in_range(movement)
        unit = np.maximum(np.abs(both).max(axis=0) / 127, 1e-6)
        kept = np.round(both / unit).clip(-127, 127)
        begin = number * N_POINTS
        self.table[begin : begin + len(both)] = torch.from_numpy(kept.astype(np.int8))
        self.unit[number] = torch.from_numpy(unit)
        self.length[number] = len(both)
        self.features[number] = torch.from_numpy(movement_features(movement))
        self.depth[number] = torch.from_numpy(movement_depth(kept * unit))

    def measure_depths(self) -> None:
        """Makes the templates of before headers said how deep movements are such that they can."""
        if self.depth.any():
            return
        features = self.features.clone()  # of the movements before what wanders was left out
        for number in range(STILL + 1, self.n_templates):
            rows = slice(number * N_POINTS, number * N_POINTS + int(self.length[number]))
            self.set(number, (self.table[rows] * self.unit[number]).numpy())
        self.features.copy_(features)

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

    def forward(
        self, code: Tensor, depth: Tensor, seed: Tensor, point: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns log2 of the amplitudes' factors, and phases in cycles, [B, T, points, N_PARTIALS].

        Of codes int64 [B, 1 + T] and depths [B, 1 + T, 2, N_MOVING_GROUPS], of the frame before and of each
        frame, seeds int64 [B] and points int64 [B, T, points] since the onset; `share` [points, 1] is how far
        each is from the movement of the frame before.
        """
        number = torch.remainder(code, self.n_templates)
        unit = self.unit[number] * _deeper(depth - self.depth[number])[..., self.group].transpose(2, 3)
        start = counter_hash(seed, torch.zeros_like(seed)[:, None], purpose=3)[:, :, None]
        before, after = (
            self._at(number[:, frames], unit[:, frames], start, point)
            for frames in (slice(None, -1), slice(1, None))
        )
        level = before[..., 0] + (after[..., 0] - before[..., 0]) * share
        free = (self.alignment(code) == FREE).float()[:, :, None, None]
        begin, end = before[..., 1] * free[:, :-1], after[..., 1] * free[:, 1:]
        turn = end - begin
        phase = begin + (turn - torch.round(turn)) * share
        fade = torch.clamp((point.float() - FADE_IN) / FADE_IN, 0.0, 1.0)[..., None]
        level = torch.clamp(level, LEAST_DB, MOST_DB)
        return level[..., self.partial] * (DECIBEL * fade), phase[..., self.partial]

    def _at(self, number: Tensor, unit: Tensor, start: Tensor, point: Tensor) -> Tensor:
        """Returns dB and cycles [B, T, points, N_MOVING, 2] of templates [B, T], whose table is in units [B,
        T, N_MOVING, 2]."""
        period = (2 * self.length[number] - 2)[..., None]
        place = torch.remainder(torch.remainder(start, period) + point, period)
        place = torch.minimum(place, period - place)
        return self.table[number[..., None] * N_POINTS + place].float() * unit[:, :, None]


@functools.cache
def _of_stillness() -> NDArray[np.float32]:
    """Returns the features of what does not move."""
    return movement_features(np.zeros((N_POINTS, N_MOVING, 2), dtype=np.float16))


def _deeper(away: Tensor) -> Tensor:
    """Returns the factors that make movements deeper, or less deep, of the dB by which headers differ, [...,
    2, groups]. What beats less loudly turns less, too: a phase turns by half a cycle where a level is next to
    nothing, and is heard as a click where it is not."""
    off = torch.abs(away)
    changed = torch.sign(away) * torch.minimum(off, 2.0 * torch.clamp(off - AS_IT_IS_DB, min=0.0))
    level, phase = torch.clamp(changed, max=MOST_DEEPENED_DB).unbind(dim=-2)
    phase = torch.where(level < 0, torch.minimum(phase, level), phase)
    return torch.exp2(DECIBEL * torch.stack([level, phase], dim=-2))


def _in_range(movement: NDArray[np.floating]) -> NDArray[np.float32]:
    """Returns dB and cycles [points, N_MOVING, 2] of a movement, all of whose partials then move, and none
    wanders."""
    moves = np.flatnonzero((movement != 0).any(axis=(0, 2)))
    exact = movement.astype(np.float32)
    if len(moves):
        exact = exact[:, moves[np.abs(moves - np.arange(N_MOVING)[:, None]).argmin(axis=1)]]
    steps = np.diff(exact[:, :, 1], axis=0, prepend=exact[:1, :, 1])
    phase = np.cumsum(steps - np.round(steps), axis=0)
    wanders = np.ptp(phase, axis=0) > 2 * WANDER_CYCLES
    slow = gaussian_filter1d(phase, gaussian_deviation(WANDER_HZ, RATE), axis=0, mode="nearest")
    phase -= np.where(wanders, slow, (phase.max(axis=0) + phase.min(axis=0)) / 2)
    return np.stack([exact[:, :, 0], phase], axis=2)


def _as_deep_as_they_are(templates: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Makes templates of before headers said how deep movements are play as they did: beside a depth of 0."""
    if f"{prefix}table" in state and f"{prefix}depth" not in state:
        assert isinstance(templates, Templates)
        state[f"{prefix}depth"] = torch.zeros_like(templates.depth)
