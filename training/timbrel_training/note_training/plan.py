"""Which notes go into which batch: notes of like length side by side, so that little is padding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_training.loop import batch_seed


class BatchPlan:
    """The batches of a run, epoch after epoch; a function of lengths, budget and seed alone.

    An epoch's notes are shuffled, cut into windows, sorted by length within a window and packed into batches
    of at most `budget` padded steps; then the batches are shuffled. Windows, rather than sorting everything,
    vary which notes meet.

    Args:
        n_steps: int64 [N], decoder steps of each note.
        budget: padded steps per batch; a batch has at least one note.
        seed: of the shuffles.
        window: notes sorted together.
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
        """Numbers 0 .. N - 1 of the notes in the batch of a 0-based training step."""
        while self._first_of_epoch[-1] <= step:
            self._load(len(self._first_of_epoch) - 1)
            self._first_of_epoch.append(self._first_of_epoch[-1] + len(self._batches))
        epoch = int(np.searchsorted(self._first_of_epoch, step, "right")) - 1
        if epoch != self._epoch:
            self._load(epoch)
        return self._batches[step - self._first_of_epoch[epoch]]

    def epoch_of(self, step: int) -> float:
        """How many epochs are behind a step."""
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
