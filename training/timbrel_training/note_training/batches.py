"""The notes of each training batch, and the points of the map that they are trained at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import CheckpointError
from timbrel_training.loop import batch_seed
from timbrel_training.timbre.map import TimbreMap
from timbrel_training.tokens.table import TokenTable


class BatchPlan:
    """The batches of a run, epoch after epoch; a function of the notes' steps int64 [N], budget and seed
    alone.

    An epoch's notes are shuffled, cut into windows, sorted by length within a window and packed into batches
    of at most `budget` padded steps, or of one note; then the batches are shuffled. Windows, rather than
    sorting everything, vary which notes meet.
    """

    def __init__(self, n_steps: NDArray[np.int64], budget: int, seed: int, window: int = 2048) -> None:
        self.n_steps = n_steps
        self.budget = budget
        self.seed = seed
        self.window = window
        self._first_of_epoch = [0]
        self._epoch = -1
        self._batches: list[NDArray[np.int64]] = []

    def batch(self, step: int) -> NDArray[np.int64]:
        """Returns the numbers 0 .. N - 1 of the notes in the batch of a 0-based training step."""
        while self._first_of_epoch[-1] <= step:
            self._load(len(self._first_of_epoch) - 1)
            self._first_of_epoch.append(self._first_of_epoch[-1] + len(self._batches))
        epoch = int(np.searchsorted(self._first_of_epoch, step, "right")) - 1
        if epoch != self._epoch:
            self._load(epoch)
        return self._batches[step - self._first_of_epoch[epoch]]

    def epoch_of(self, step: int) -> float:
        """Returns how many epochs are behind a step."""
        self.batch(step)
        epoch = int(np.searchsorted(self._first_of_epoch, step, "right")) - 1
        first, end = self._first_of_epoch[epoch], self._first_of_epoch[epoch + 1]
        return epoch + (step - first) / (end - first)

    def _load(self, epoch: int) -> None:
        generator = np.random.default_rng(batch_seed(self.seed, epoch))
        order = generator.permutation(len(self.n_steps))
        batches: list[NDArray[np.int64]] = []
        for first in range(0, len(order), self.window):
            window = order[first : first + self.window]
            batches.extend(pack(window, self.n_steps, self.budget))
        self._batches = [batches[index] for index in generator.permutation(len(batches))]
        self._epoch = epoch


def pack(notes: NDArray[np.int64], n_steps: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Splits notes, longest first, into batches of at most `budget` steps, padding to the longest counted."""
    ordered = notes[np.argsort(-n_steps[notes], kind="stable")]
    batches = []
    while len(ordered):
        size = max(1, budget // int(n_steps[ordered[0]]))
        batches.append(ordered[:size])
        ordered = ordered[size:]
    return batches


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
        """Makes the noise `noise_fraction` of the distance from a note's instrument to the nearest other.

        The median of these distances is the most that counts: instruments with much room need no more noise
        than others, and crowded ones are not blurred into their neighbours. Raises CheckpointError: the map
        is empty, or was made from other notes.
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
        """Returns points [B, 2] in the unit disc for training notes [B]."""
        chosen = generator.random(len(notes)) < centroid_share
        points = np.where(chosen[:, None], self.centroid[notes], self.own[notes])
        points = points + self.noise[notes] * generator.standard_normal(points.shape)
        radius = np.linalg.norm(points, axis=1, keepdims=True)
        return (points / np.maximum(radius, 1.0)).astype(np.float32)
