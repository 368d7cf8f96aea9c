"""timbre_references.json: which instruments of a bundle's map a sound may be of, and whether of any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel_bundle.errors import BundleError
from timbrel_bundle.files import parse_message, read_json_object
from timbrel_bundle.manifest import text_faults
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MOST_NUMBERS = 1_000_000


def load_timbre_references(path: Path | str, instruments: Sequence[str]) -> pb.TimbreReferences:
    """Reads a timbre_references.json for a map of these instruments. Raises BundleError: it is missing,
    unreadable, contradicts itself, or is of another map."""
    path = Path(path)
    references = parse_message(read_json_object(path), pb.TimbreReferences(), path)
    for fault in timbre_references_faults(references, instruments):
        raise BundleError(path, fault)
    return references


def timbre_references_faults(references: pb.TimbreReferences, instruments: Sequence[str]) -> Iterator[str]:
    """Yields what is wrong with references for a map of these instruments; nothing where they are sound."""
    found = references.references
    yield from text_faults(references)
    widths = {len(each.embedding) for each in found}
    if len(widths) != 1 or not min(widths):
        yield f"has embeddings of {sorted(widths)} numbers, all of one length are needed"
    elif len(found) * min(widths) > MOST_NUMBERS:
        yield f"holds {len(found) * min(widths)} numbers, {MOST_NUMBERS} are the most"
    elif not np.isfinite([each.embedding for each in found]).all():
        yield "holds an embedding that is not finite"
    if {each.instrument for each in found} != set(instruments):
        yield "names other instruments than the timbre map"
    if not 0.0 < references.sharpness < np.inf:
        yield f"has a sharpness of {references.sharpness:g}, more than 0 is needed"
    if not -1.0 <= references.nearness <= 1.0:
        yield f"has a nearness of {references.nearness:g}, a cosine of -1 to 1 is needed"


class Recogniser:
    """Compares embeddings with the references of a map's instruments."""

    def __init__(self, references: pb.TimbreReferences, instruments: Sequence[str]) -> None:
        """Takes sound references, and the map's instruments in order."""
        number = {name: index for index, name in enumerate(instruments)}
        self._embeddings = np.array([each.embedding for each in references.references], np.float32)
        self._instrument = np.array([number[each.instrument] for each in references.references])
        self._n_instruments = len(number)
        self._sharpness, self._nearness = references.sharpness, references.nearness

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return int(self._embeddings.shape[1])

    def shares(self, embedding: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], bool]:
        """Returns the share of each instrument, [n_instruments], and whether any is near, of an embedding."""
        scores = np.full(self._n_instruments, -np.inf)
        np.maximum.at(scores, self._instrument, (self._embeddings @ embedding).astype(np.float64))
        weights = np.exp(self._sharpness * (scores - scores.max()))
        return weights / weights.sum(), bool(scores.max() >= self._nearness)
