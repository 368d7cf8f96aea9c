"""The size of the bundle's files."""

from __future__ import annotations

from collections.abc import Iterator

from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.measure.bootstrap import Estimate
from timbrel_posttraining.evaluate.sections.section import Wanted

MEGABYTE = 1e6


class Size:
    """What has to be downloaded or shipped."""

    name = "bundle"

    def __init__(self, material: Material) -> None:
        self.megabytes = sum(file.size for file in material.bundle.manifest.files) / MEGABYTE

    def wanted(self) -> Iterator[Wanted]:
        yield from ()

    def judge(self, heard: Heard) -> SectionReport:
        size = Estimate(value=self.megabytes, low=self.megabytes, high=self.megabytes, n=1)
        figure = Figure("bundle.megabytes", "all files of the bundle", size, "MB")
        return SectionReport(self.name, "Size", "As the manifest lists them.", (figure,))
