"""Reading what `timbrel train evaluate` left, for a bundle that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbrel_posttraining.evaluate.evaluation import MAP_PICTURE, REPORT_JSON
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.errors import TrainingError


@dataclass(frozen=True)
class Evaluation:
    """A report and the picture drawn with it."""

    report: Mapping[str, Any]
    map_picture: str  # SVG


def read_evaluation(folder: Path, manifest: pb.Manifest) -> Evaluation:
    """The evaluation in `folder`.

    Raises:
        TrainingError: there is none, it is damaged, or it judged another bundle.
    """
    try:
        report = json.loads((folder / REPORT_JSON).read_text("utf-8"))
        picture = (folder / MAP_PICTURE).read_text("utf-8")
        judged = str(report["bundle_hash"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{folder}: holds no finished evaluation ({error}); run `timbrel train evaluate --out {folder}`"
        ) from error
    if judged != manifest.bundle_hash:
        raise TrainingError(
            f"{folder}: judged bundle {judged[:12]}, this one is {manifest.bundle_hash[:12]}; "
            "evaluate it, then write the card"
        )
    return Evaluation(report, picture)
