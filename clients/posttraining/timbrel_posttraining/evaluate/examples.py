"""The notes that the page shows as pictures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.page import Example
from timbrel_posttraining.evaluate.picture import spectrogram_uri
from timbrel_posttraining.evaluate.sections.cells import Cells
from timbrel_posttraining.evaluate.take import Kind


def examples_of(material: Material, sections: tuple[Cells, ...], heard: Heard) -> Iterator[Example]:
    """Of each family, in the map's order, the first note of every section that has one."""
    for family in dict.fromkeys(material.families):
        for section in sections:
            found = [number for number, row in enumerate(section.rows) if material.family(row) == family]
            if found:
                yield _example(material, section, found[0], heard)


def _example(material: Material, section: Cells, number: int, heard: Heard) -> Example:
    takes = {kind: section.takes[kind][number] for kind in Kind}
    source = takes[Kind.SOURCE]
    peak = float(np.max(heard.mel(source)))
    pictures = tuple((str(kind), spectrogram_uri(heard.mel(take), peak)) for kind, take in takes.items())
    title = (
        f"{material.name(source.row)}, pitch {source.pitch}, velocity {source.velocity}, "
        f"held {source.seconds:.2f} s ({section.title.lower()})"
    )
    return Example(title, pictures)
