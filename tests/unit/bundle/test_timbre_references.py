"""References: shares and nearness of embeddings, and files that contradict themselves or the map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timbrel_bundle.errors import BundleError
from timbrel_bundle.files import write_message
from timbrel_bundle.timbre_references import Recogniser, load_timbre_references
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

NAMES = ["Oboe", "Flute"]


def references() -> pb.TimbreReferences:
    made = pb.TimbreReferences(sharpness=10.0, nearness=0.8)
    for name, embedding in (("Flute", (1.0, 0.0, 0.0)), ("Oboe", (0.0, 1.0, 0.0)), ("Oboe", (0.0, 0.0, 1.0))):
        made.references.add(instrument=name, embedding=embedding)
    return made


def test_the_best_of_an_instruments_references_counts() -> None:
    recogniser = Recogniser(references(), NAMES)
    shares, near = recogniser.shares(np.array([0.0, 0.0, 1.0], np.float32))
    assert shares[0] == pytest.approx(1.0 / (1.0 + np.exp(-10.0))) and shares.sum() == pytest.approx(1.0)
    assert near
    shares, near = recogniser.shares(np.array([0.75, 0.6614, 0.0], np.float32))
    assert shares[1] > shares[0] and not near


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.references[0].embedding.append(1.0), r"embeddings of \[3, 4\] numbers"),
        (lambda made: made.ClearField("references"), "all of one length"),
        (lambda made: made.references[0].embedding.__setitem__(0, np.nan), "not finite"),
        (lambda made: made.references.pop(0), "other instruments than the timbre map"),
        (
            lambda made: made.references.add(instrument="Viola", embedding=(1.0, 0.0, 0.0)),
            "other instruments",
        ),
        (lambda made: setattr(made, "sharpness", 0.0), "sharpness of 0"),
        (lambda made: setattr(made, "nearness", 1.5), "nearness of 1.5"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(change: object, message: str, tmp_path: Path) -> None:
    made, path = references(), tmp_path / "timbre_references.json"
    write_message(made, path)
    assert load_timbre_references(path, NAMES) == made
    assert callable(change)
    change(made)
    write_message(made, path)
    with pytest.raises(BundleError, match=message) as caught:
        load_timbre_references(path, NAMES)
    assert "\n" not in str(caught.value)
