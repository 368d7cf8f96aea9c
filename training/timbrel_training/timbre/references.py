"""By what instruments are recognised: a mean embedding each, and how sure a likeness makes one.

timbre_references.json    {"references": [{instrument, embedding}, ..], "sharpness", "nearness"}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from timbrel_training.checkpoint import replace_file
from timbrel_training.errors import CheckpointError

REFERENCES_FILE = "timbre_references.json"
N_BINS = 10
FOREIGN_REFUSED = 0.95
"""So many foreign sounds are to be refused,"""
NOTES_REFUSED = 0.05
"""but no more notes than this."""

Embeddings = NDArray[np.float32]
"""[N, D], each of length 1."""
Numbers = NDArray[np.int64]
"""[N], instruments by their number on the map."""


@dataclass(frozen=True, eq=False)
class References:
    """The embeddings that those of sounds are compared with; the fields of the TimbreReferences message."""

    embeddings: Embeddings  # [m, D], of each instrument of the map
    sharpness: float  # shares are the softmax of so many times the cosines
    nearness: float  # the cosine below which nothing is near

    def shares(self, embeddings: Embeddings) -> NDArray[np.float64]:
        """Returns how likely each sound is one of each instrument, [N, m]."""
        return np.asarray(softmax(self.sharpness * (embeddings @ self.embeddings.T), axis=1), np.float64)

    def near(self, embeddings: Embeddings) -> NDArray[np.bool_]:
        """Returns whether each sound is like any instrument, [N]."""
        return np.asarray((embeddings @ self.embeddings.T).max(axis=1) >= self.nearness)


@dataclass(frozen=True)
class ReferenceFigures:
    """Figures of references, of notes and sounds that they were not fitted to."""

    named: float  # share of notes as recordings have them whose own instrument has the largest share
    among_three: float  # or one of the three largest
    unreliability: float  # largest difference of shares and of how many are right, in ten bins
    refused: float  # share of those notes to which nothing is said to be near
    foreign_refused: float  # the same of sounds that are no note


def mean_embeddings(embeddings: Embeddings, instrument: Numbers, n_instruments: int) -> Embeddings:
    """Returns the mean direction [n_instruments, D] of the embeddings of each."""
    sums = np.zeros((n_instruments, embeddings.shape[1]))
    np.add.at(sums, instrument, embeddings)
    return (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def fit_references(
    embeddings: Embeddings, judged: Embeddings, instrument: Numbers, foreign: Embeddings
) -> tuple[References, ReferenceFigures]:
    """Fits sharpness and nearness to every other one of the sounds judged by, and measures on the others; a
    single note is both.

    Of embeddings [m, D] of each instrument; those judged are of notes, of an `instrument` each, that were not
    trained on, as recordings have them; `foreign` are of sounds that are no note.
    """
    cosines, own = judged[::2] @ embeddings.T, instrument[::2]
    tried = np.geomspace(1.0, 200.0, 200)
    likelihood = [log_softmax(s * cosines, axis=1)[np.arange(len(own)), own].mean() for s in tried]
    of_notes, of_foreign = cosines.max(axis=1), (foreign[::2] @ embeddings.T).max(axis=1)
    nearness = min(np.quantile(of_foreign, FOREIGN_REFUSED), np.quantile(of_notes, NOTES_REFUSED))
    found = References(embeddings, float(tried[int(np.argmax(likelihood))]), float(nearness))
    others = slice(1, None, 2) if len(judged) > 1 else slice(None)
    rest, own = judged[others], instrument[others]
    shares = found.shares(rest)
    rank = (shares > shares[np.arange(len(own)), own][:, None]).sum(axis=1)
    figures = ReferenceFigures(
        named=float((rank == 0).mean()),
        among_three=float((rank < 3).mean()),
        unreliability=unreliability(shares.max(axis=1), rank == 0),
        refused=float(1.0 - found.near(rest).mean()),
        foreign_refused=float(1.0 - found.near(foreign[1::2]).mean()),
    )
    return found, figures


def unreliability(shares: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Returns by how much, at worst, mean share [N] and part right [N] of a tenth of the notes differ."""
    bins = np.array_split(np.argsort(shares, kind="stable"), N_BINS)
    return (
        max(abs(float(shares[of].mean() - right[of].mean())) for of in bins if len(of))
        if len(shares)
        else 0.0
    )


def write_references(folder: Path, references: References, instruments: Sequence[str]) -> None:
    """Writes timbre_references.json; `instruments` are the map's, in order."""
    rounded = np.round(references.embeddings.astype(np.float64), 5).tolist()
    content = {
        "references": [
            {"instrument": name, "embedding": each} for name, each in zip(instruments, rounded, strict=True)
        ],
        "sharpness": references.sharpness,
        "nearness": references.nearness,
    }
    text = json.dumps(content) + "\n"
    replace_file(folder / REFERENCES_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def read_references(folder: Path) -> References:
    """Reads the references of a stage-1 folder. Raises CheckpointError: missing or damaged."""
    path = folder / REFERENCES_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        embeddings = np.array([each["embedding"] for each in content["references"]], np.float32)
        return References(embeddings, float(content["sharpness"]), float(content["nearness"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: missing or damaged ({error}); train stage 1 again") from error
