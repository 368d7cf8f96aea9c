"""Writes a fine-tuned bundle: new decoder weights and a longer timbre map beside the base's own graphs."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import (
    GRAPHS,
    MANIFEST,
    MODEL_WEIGHTS,
    TIMBRE_MAP,
    WEIGHTS,
)
from timbrel_bundle.manifest import save_manifest
from timbrel_bundle.timbre_map import save_timbre_map
from timbrel_export.bundle_folder import describe_bundle, git_revision, new_bundle
from timbrel_export.bundle_parity import check_decoders
from timbrel_export.onnx_export import round_to_half, save_weights
from timbrel_export.sample_note import SampleNote
from timbrel_posttraining.finetune.base import Base
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.map import MapPoint


def write_bundle(
    base: Base,
    model: NoteTransformer,
    points: Sequence[MapPoint],
    training: pb.TrainingInfo,
    notes: Sequence[SampleNote],
    out_dir: Path,
    name: str,
) -> pb.Manifest:
    """Writes the bundle `out_dir`: whole, or not at all.

    Graphs hold no weights, so those of the base serve the new weights as they are; so do its codec and its
    timbre encoder, which were not trained. A model card or picture of the base is left behind: it tells of
    the base.

    Args:
        base: what was fine-tuned.
        model: the result.
        points: of the new instruments; the base's own points stay as they are.
        training: for the manifest.
        notes: real notes to compare graphs and model on.
        out_dir: the folder; an older bundle there is replaced.
        name: the bundle's name.

    Raises:
        ParityError: the graphs compute something else with these weights than the model does.
    """
    shipped = copy.deepcopy(model).cpu().eval()
    round_to_half(shipped)
    with new_bundle(out_dir) as folder:
        for file in (*GRAPHS, *WEIGHTS):
            if file in base.bundle and file != MODEL_WEIGHTS:
                shutil.copyfile(base.bundle.file(file), folder / file)
        save_weights(shipped, folder / MODEL_WEIGHTS, dataclasses.asdict(shipped.config))
        save_timbre_map(_longer_map(base, points), folder / TIMBRE_MAP)
        manifest = describe_bundle(folder, name, git_revision())
        for section in ("codec", "model", "ranges"):
            getattr(manifest, section).CopyFrom(getattr(base.bundle.manifest, section))
        manifest.training.CopyFrom(training)
        save_manifest(manifest, folder / MANIFEST)
        manifest.parity.CopyFrom(_parity(Bundle.open(folder), base, shipped, notes))
        save_manifest(manifest, folder / MANIFEST)
    return manifest


def _longer_map(base: Base, points: Sequence[MapPoint]) -> pb.TimbreMap:
    longer = pb.TimbreMap()
    longer.CopyFrom(base.bundle.timbre_map)
    longer.points.extend(pb.TimbrePoint(**dataclasses.asdict(point)) for point in points)
    return longer


def _parity(
    bundle: Bundle, base: Base, model: NoteTransformer, notes: Sequence[SampleNote]
) -> pb.ParityReport:
    """Of the decode graphs; the codec's figure is the base's, as the codec is."""
    report = check_decoders(bundle, model, notes)
    report.max_audio_difference = base.bundle.manifest.parity.max_audio_difference
    return report
