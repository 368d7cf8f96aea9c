"""Which point of the map a note is trained at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import CheckpointError
from timbrel_training.timbre.map import TimbreMap
from timbrel_training.token_table import TokenTable


@dataclass(frozen=True, eq=False)
class TimbreConditions:
    """Points of the notes and of their instruments.

    Training draws from either, and around them, so that the disc between instruments has been visited;
    validation uses the instrument's own point, as a player would.
    """

    own: NDArray[np.float32]  # [N, 2], where stage 1 put each note
    centroid: NDArray[np.float32]  # [N, 2], of each note's instrument; its own point where the map has none
    noise: NDArray[np.float32]  # [N, 1], standard deviation per coordinate

    @classmethod
    def from_map(
        cls, chart: TimbreMap, points: NDArray[np.float32], table: TokenTable, noise_fraction: float
    ) -> TimbreConditions:
        """Noise is `noise_fraction` of the distance from a note's instrument to the nearest other one.

        The median of these distances is the most that counts: instruments with much room need no more noise
        than others, and crowded ones are not blurred into their neighbours.

        Raises:
            CheckpointError: the map is empty, or was made from other notes.
        """
        if len(points) != table.n_notes:
            raise CheckpointError(
                f"the timbre map places {len(points)} notes, the token store holds {table.n_notes}; "
                "train stage 1 on this store"
            )
        if not chart.points:
            raise CheckpointError("the timbre map is empty: stage 1 saw no training notes")
        index = chart.index_of(table)[table.instrument]
        centroid = np.where((index >= 0)[:, None], chart.centroids[np.maximum(index, 0)], points)
        room = np.minimum(chart.spacings, chart.spacing)
        noise = noise_fraction * np.where(index >= 0, room[np.maximum(index, 0)], chart.spacing)
        return cls(points, centroid.astype(np.float32), noise.astype(np.float32)[:, None])

    def draw(
        self, notes: NDArray[np.int64], centroid_share: float, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Points [B, 2] in the unit disc for training notes [B]."""
        chosen = generator.random(len(notes)) < centroid_share
        points = np.where(chosen[:, None], self.centroid[notes], self.own[notes])
        points = points + self.noise[notes] * generator.standard_normal(points.shape)
        radius = np.linalg.norm(points, axis=1, keepdims=True)
        return (points / np.maximum(radius, 1.0)).astype(np.float32)
