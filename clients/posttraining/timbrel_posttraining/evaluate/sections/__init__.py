"""The sections of a report: each says which takes it wants, and judges them once they are measured."""

from timbrel_posttraining.evaluate.sections import (
    fidelity,
    gaps,
    identity,
    map,
    realism,
    response,
    whole_bundle,
)
from timbrel_posttraining.evaluate.sections.section import Section

SECTIONS: tuple[type[Section], ...] = (
    realism.TwoSample,
    realism.Truth,
    gaps.Gaps,
    fidelity.TrainedCells,
    fidelity.HeldOutCells,
    fidelity.Between,
    identity.Apart,
    identity.Identity,
    response.Velocity,
    response.Release,
    whole_bundle.Variety,
    map.Locate,
    map.MapQuality,
    whole_bundle.Size,
)
"""All sections, in the report's order. A new one is listed here, and nowhere else."""
