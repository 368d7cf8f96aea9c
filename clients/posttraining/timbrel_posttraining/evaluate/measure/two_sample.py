"""The two-sample test: does a classifier tell one set of notes from another? 0.5 is chance, 1 always.

A classifier (boosted trees) is trained to tell the two sets by the statistics of `note_statistics`, and asked
about notes of cells that it was not trained on (Lopez-Paz and Oquab 2017, "Revisiting classifier two-sample
tests"). The figure is the area under the ROC curve: how often the note of the one set is the more suspicious.

    scores = two_sample(statistics(sources, 48_000), statistics(candidates, 48_000), cells)
    print(scores.auc(), scores.auc_of(kinds == "sustained"))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from timbrel_posttraining.evaluate.estimates import NOTHING, Estimate
from timbrel_posttraining.evaluate.measure.note_statistics import statistics_of

N_FOLDS = 5
"""Parts of the cells; each is judged by a classifier trained on the others."""
N_REPEATS = 2
"""Ways to cut the cells into parts, whose scores are averaged."""
N_RESAMPLES = 500
"""Draws of the cells for an interval."""
FEWEST_CELLS = N_FOLDS
"""Cells that a test needs."""


@dataclass(frozen=True)
class Scores:
    """Tells how suspicious each note is, in two sets of notes that are judged against one another."""

    source: NDArray[np.float64]
    candidate: NDArray[np.float64]
    cells: NDArray[np.int64]
    """[n], a number for the cell of source note and candidate n."""

    def auc(self) -> Estimate:
        """Estimates the AUC, its interval by drawing whole cells anew."""
        return self.auc_of(np.ones(len(self.cells), dtype=bool))

    def auc_of(self, kept: ArrayLike) -> Estimate:
        """Estimates the AUC of some of the notes, flags [n]."""
        rows = np.flatnonzero(np.asarray(kept))
        if not len(rows):
            return NOTHING
        _, cells = np.unique(self.cells[rows], return_inverse=True)
        source, candidate = self.source[rows], self.candidate[rows]
        wins = (candidate[:, None] > source).astype(np.float64) + 0.5 * (candidate[:, None] == source)
        by_cell = np.zeros((cells.max() + 1, cells.max() + 1))
        np.add.at(by_cell, (cells[:, None], cells[None]), wins)
        sizes = np.bincount(cells).astype(np.float64)
        rng = np.random.default_rng(0)
        n = len(sizes)
        drawn = np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(N_RESAMPLES)])
        values = np.einsum("ri,ij,rj->r", drawn, by_cell, drawn, optimize=True) / np.square(drawn @ sizes)
        low, high = np.percentile(values, (2.5, 97.5))
        return Estimate(float(wins.mean()), float(low), float(high), len(rows))


def statistics(notes: Iterable[NDArray[np.float32]], sample_rate: int) -> NDArray[np.float32]:
    """Describes notes, each audio [samples], by [notes, statistics]."""
    return np.stack([statistics_of(note, sample_rate) for note in notes])


def two_sample(
    source: NDArray[np.float32],
    candidate: NDArray[np.float32],
    cells: ArrayLike,
    recordings: ArrayLike | None = None,
) -> Scores | None:
    """Judges two sets of notes by their statistics [n, statistics]; row n of both is of cell n.

    Notes of one cell are always judged together, by classifiers that saw none of it. Candidates of one of the
    `recordings` [n], played at several pitches, are known again in other cells, too: whoever judges one saw
    none of them. Negative ones are each their own. None of fewer than FEWEST_CELLS cells, or where nothing is
    left to learn from.
    """
    _, numbers = np.unique(np.asarray(cells), return_inverse=True)
    n, n_cells = len(numbers), int(numbers.max(initial=-1)) + 1
    if n_cells < FEWEST_CELLS:
        return None
    made_of = np.full(n, -1) if recordings is None else np.asarray(recordings)
    values, labels = np.concatenate([source, candidate]), np.repeat((0, 1), n)
    groups, scores = np.tile(numbers, 2), np.zeros(2 * n)
    for repeat in range(N_REPEATS):
        part = np.random.default_rng(repeat).permutation(n_cells) % N_FOLDS
        for fold in range(N_FOLDS):
            asked = part[groups] == fold
            known_again = np.isin(made_of, made_of[asked[:n]]) & (made_of >= 0)
            learnt = ~asked & ~np.tile(known_again, 2)
            if not learnt.any():
                return None
            seen = ~np.isnan(values[learnt]).all(axis=0)
            with threadpool_limits(1):  # more than one only wait for each other on so few notes
                trees = _classifier(repeat).fit(values[learnt][:, seen], labels[learnt])
                scores[asked] += trees.decision_function(values[asked][:, seen])
    return Scores(scores[:n], scores[n:], np.asarray(numbers, dtype=np.int64))


def _classifier(seed: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_iter=150,
        learning_rate=0.08,
        max_leaf_nodes=8,
        min_samples_leaf=10,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
        random_state=seed,
    )
