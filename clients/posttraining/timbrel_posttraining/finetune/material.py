"""What a model is fine-tuned on: coded samples and rehearsal as one table, with points of the map."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.note_training.batches import TimbreConditions
from timbrel_training.notes.split import Split
from timbrel_training.timbre.map import MapPoint
from timbrel_training.tokens.table import TokenTable


@dataclass(frozen=True, eq=False)
class Material:
    """Notes to train on. The first `n_samples` of the table are the new ones."""

    table: TokenTable
    conditions: TimbreConditions
    n_samples: int

    @property
    def samples(self) -> NDArray[np.int64]:
        """Numbers of the new notes to train on."""
        training = self.table.of_split(Split.TRAIN)
        return training[training < self.n_samples]

    @property
    def rehearsal(self) -> NDArray[np.int64]:
        """Numbers of the notes of rehearsal."""
        return np.arange(self.n_samples, self.table.n_notes)


def new_points(samples: TokenTable, where: NDArray[np.float32]) -> list[MapPoint]:
    """The samples' instruments as they stand on a map: `where` [M, 2] says at which points."""
    found = []
    for index, (name, family) in enumerate(zip(samples.instruments, samples.families, strict=True)):
        pitches = samples.pitch[samples.instrument == index]
        x, y = where[index].tolist()
        found.append(MapPoint(name, family, x, y, int(pitches.min()), int(pitches.max())))
    return found


def gather(
    samples: TokenTable,
    own: NDArray[np.float32],
    where: NDArray[np.float32],
    rehearsal: TokenTable | None,
    points: NDArray[np.float32],
    noise: float,
) -> Material:
    """Puts samples and rehearsal together.

    Args:
        samples: coded samples [N]; each of their instruments keeps some for training.
        own: [N, 2], each sample's own point.
        where: [M, 2], of the samples' instruments.
        rehearsal: what the model wrote [R]; None where it wrote nothing.
        points: [R, 2], where it was written.
        noise: standard deviation, per coordinate, of the noise that training adds to points.
    """
    samples = _with_training_notes(samples)
    return Material(
        table=samples if rehearsal is None else _join(samples, rehearsal),
        conditions=TimbreConditions(
            own=np.concatenate([own, points]).astype(np.float32),
            centroid=np.concatenate([where[samples.instrument], points]).astype(np.float32),
            noise=np.full((samples.n_notes + len(points), 1), noise, dtype=np.float32),
        ),
        n_samples=samples.n_notes,
    )


def check_names(new: Sequence[str], old: Sequence[str]) -> None:
    """Raises TrainingError where a new instrument has the name of an old one: the map knows them by name."""
    known = {name.casefold(): name for name in old}
    for name in new:
        if name.casefold() in known:
            raise TrainingError(
                f"{name!r}: the bundle has an instrument {known[name.casefold()]!r} already; "
                "give yours another name, in its file names or in the CSV's column `instrument`"
            )


def _with_training_notes(samples: TokenTable) -> TokenTable:
    """An instrument of few pitches may have all of them held out: they are trained on then."""
    split = samples.split.copy()
    for index in range(len(samples.instruments)):
        own = samples.instrument == index
        if not (split[own] == int(Split.TRAIN)).any():
            split[own] = int(Split.TRAIN)
    return dataclasses.replace(samples, split=split)


def _join(first: TokenTable, second: TokenTable) -> TokenTable:
    """Two tables of one codec, one behind the other; instruments stay apart."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("codes", "pitch", "velocity", "held_frames", "cut", "split")
    }
    return dataclasses.replace(
        first,
        **columns,
        offsets=np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
        instrument=np.concatenate([first.instrument, second.instrument + len(first.instruments)]),
        instruments=first.instruments + second.instruments,
        families=first.families + second.families,
    )
