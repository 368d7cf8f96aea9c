"""Lays instruments out in the unit disc: what sounds alike lies together, and none lies on another.

Distances are acoustic, and the layout is found by descent: t-SNE (van der Maaten & Hinton, 2008) says which
instruments are neighbours, a hinge keeps them apart, so that a hundred and more have room.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SEGMENT_GROWTH = 1.6
"""Each segment of a note is this much longer than the one before: attacks change faster than tails."""
N_SEGMENTS = 8
SEMITONES = 6
"""Notes of two instruments are compared within as many semitones: a spectrum moves with its pitch."""
N_NEIGHBOURS = 6
"""About so many neighbours count for each instrument: t-SNE's perplexity."""
N_STEPS = 1500
LEARNING_RATE = 0.02
REPULSION = 3000.0
"""Weight of the squared hinge between instruments, and outside the disc, at the end."""

LEAST_LIKELY, TINY = 1e-12, 1e-12
"""What is less likely no longer counts; and what keeps a root's slope finite."""

Vector = NDArray[np.float64]
Distances = NDArray[np.float64]
"""[M, M], symmetrical, 0 on the diagonal."""


def segment_means(levels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean levels [B, N_SEGMENTS, n_bands] of a note's segments, and whether it has any, [.., 1], of
    levels float32 [B, F, n_bands] and a mask float32 [B, F, 1], 1 for the frames that a note has."""
    n_frames = levels.shape[1]
    growth = np.concatenate([[0.0], np.cumsum(SEGMENT_GROWTH ** np.arange(N_SEGMENTS))])
    edges = np.maximum(np.round(growth / growth[-1] * n_frames), np.arange(N_SEGMENTS + 1))
    edges = torch.from_numpy(edges.astype(np.int64).clip(max=n_frames)).to(levels.device)
    sums, counts = _prefix(levels * mask)[:, edges], _prefix(mask)[:, edges]
    totals, lengths = sums[:, 1:] - sums[:, :-1], counts[:, 1:] - counts[:, :-1]
    return totals / lengths.clamp(min=1.0), (lengths > 0).float()


def acoustic_distances(
    segments: NDArray[np.float32],
    present: NDArray[np.float32],
    pitch: NDArray[np.int64],
    instrument: NDArray[np.int64],
    n_instruments: int,
) -> Distances:
    """Returns how differently M instruments sound: RMS differences of mean segments [N, S, n_bands] (see
    `segment_means`), where present [N, S, 1], at pitches [N] that both play."""
    group = pitch // SEMITONES
    group = group - group.min(initial=0)
    n_groups = int(group.max(initial=0)) + 1
    sums = np.zeros((n_instruments, n_groups, *segments.shape[1:]))
    counts = np.zeros((n_instruments, n_groups, segments.shape[1], 1))
    np.add.at(sums, (instrument, group), segments * present)
    np.add.at(counts, (instrument, group), present)
    means, known = sums / np.maximum(counts, 1.0), counts > 0
    distances = np.full((n_instruments, n_instruments), np.nan)
    for one in range(n_instruments):
        shared = known & known[one]
        squares = (np.square(means - means[one]) * shared).sum(axis=(1, 2, 3))
        n_shared = shared.sum(axis=(1, 2, 3)) * segments.shape[2]
        distances[one] = np.sqrt(squares / np.where(n_shared > 0, n_shared, np.nan))
    if np.isnan(distances).any():  # of pitches that they never share nothing is known
        distances = np.where(np.isnan(distances), np.nanmax(distances, initial=1.0), distances)
    np.fill_diagonal(distances, 0.0)
    return distances


def lay_out(distances: Distances, margin: float) -> NDArray[np.float32]:
    """Returns a place for each of M instruments, float32 [M, 2] in the unit disc; always the same ones. From
    the distance `margin` on two places leave each other alone."""
    n = len(distances)
    if n < 3:
        return np.array([[0.0, 0.0], [-0.5, 0.0], [0.5, 0.0]], np.float32)[n - 1 :][:n]
    wanted, laid, scale = _neighbourhoods(distances), _principal(distances), float(np.log(np.sqrt(n)))
    adam = _Adam(2 * n + 1)
    for step in range(N_STEPS):
        progress = step / N_STEPS
        slopes = _slopes(laid, scale, wanted, margin, REPULSION * progress)
        moves = LEARNING_RATE * (1.0 - progress) * adam.direction(slopes)
        laid, scale = laid - moves[:-1].reshape(n, 2), scale - float(moves[-1])
    radius = np.linalg.norm(laid, axis=1, keepdims=True)
    return (laid / np.maximum(radius, 1.0)).astype(np.float32)


class _Adam:
    """The directions of Adam (Kingma & Ba, 2015). By hand, as the slopes are: for so few numbers a step of
    PyTorch's takes ten times as long."""

    def __init__(self, n_numbers: int) -> None:
        self._n_steps = 0
        self._mean, self._square = np.zeros(n_numbers), np.zeros(n_numbers)

    def direction(self, slopes: Vector) -> Vector:
        """Returns by how much each number goes down, at a learning rate of 1; takes slopes [n]."""
        self._n_steps += 1
        self._mean += 0.1 * (slopes - self._mean)
        self._square += 0.001 * (np.square(slopes) - self._square)
        mean, square = self._mean / (1.0 - 0.9**self._n_steps), self._square / (1.0 - 0.999**self._n_steps)
        return np.asarray(mean / (np.sqrt(square) + 1e-8))


def _slopes(places: Distances, scale: float, wanted: Distances, margin: float, repulsion: float) -> Vector:
    """Returns how the loss rises with each coordinate of places [M, 2], row by row, and with the scale.

    The loss is the divergence of Student's t of the places, whose distances count exp(scale) times, from the
    probabilities wanted, and `repulsion` times what lies too near to each other or outside the disc.
    """
    n, factor = len(places), np.exp(2.0 * scale)
    squares = np.square(places[:, None] - places[None]).sum(axis=2)
    likely = 1.0 / (1.0 + squares * factor)
    np.fill_diagonal(likely, 0.0)
    found = likely / likely.sum()
    counted = np.where(found >= LEAST_LIKELY, wanted, 0.0)
    divergence = factor * likely * (counted - counted.sum() * found)  # by the squares of distances
    apart = np.sqrt(squares + TINY)
    near = np.maximum(margin - apart, 0.0)
    np.fill_diagonal(near, 0.0)
    radius = np.sqrt(np.square(places).sum(axis=1, keepdims=True) + TINY)
    outward = 2.0 * np.maximum(radius - 1.0, 0.0) / radius * places
    by_squares = divergence - repulsion / n * near / apart
    of_places = 4.0 * (by_squares.sum(axis=1, keepdims=True) * places - by_squares @ places)
    of_scale = 2.0 * (squares * divergence).sum()
    return np.append((of_places + repulsion / n * outward).ravel(), of_scale)


def _neighbourhoods(distances: Distances) -> Distances:
    """Returns t-SNE's joint probabilities [M, M]: the sharpness of each row is found by bisection."""
    n = len(distances)
    squares = np.square(distances / np.median(distances[~np.eye(n, dtype=bool)]))
    np.fill_diagonal(squares, np.inf)
    entropy = np.log(min(N_NEIGHBOURS, (n - 1) / 1.5))
    low, high = np.full(n, 1e-6), np.full(n, 1e6)
    for _ in range(80):
        sharpness = np.sqrt(low * high)
        shares = np.exp(-sharpness[:, None] * (squares - squares.min(axis=1, keepdims=True)))
        shares /= shares.sum(axis=1, keepdims=True)
        found = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1)
        low, high = np.where(found > entropy, sharpness, low), np.where(found > entropy, high, sharpness)
    return (shares + shares.T) / (2.0 * n)


def _principal(distances: Distances) -> Distances:
    """Returns where classical scaling puts them, [M, 2], within half the disc."""
    centred = np.square(distances)
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1, keepdims=True) + centred.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    vectors = vectors * np.where(vectors.sum(axis=0) < 0, -1.0, 1.0)  # of a vector and its opposite, the same
    places = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-12))
    return 0.5 * places / max(np.linalg.norm(places, axis=1).max(), 1e-12)


def _prefix(x: Tensor) -> Tensor:
    """Returns sums of the first 0, 1, .. F frames: [B, F, D] -> [B, F + 1, D]."""
    return torch.nn.functional.pad(x.cumsum(dim=1), (0, 0, 1, 0))
