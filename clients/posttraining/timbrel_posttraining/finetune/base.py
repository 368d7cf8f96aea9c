"""The bundle that fine-tuning starts from, its decoder as a PyTorch model, and the new bundle made of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import write_message
from timbrel_bundle.layout import (
    DECODER_STEP,
    GRAPHS,
    MANIFEST,
    MODEL_WEIGHTS,
    TIMBRE_MAP,
    TIMBRE_REFERENCES,
    WEIGHTS,
)
from timbrel_bundle.manifest import save_manifest, written_ranges
from timbrel_bundle.timbre_map import save_timbre_map
from timbrel_export import bundle_folder, bundle_parity, onnx_export
from timbrel_export.errors import ExportError
from timbrel_export.sample_note import SampleNote, sample_notes
from timbrel_posttraining.bundles import published_map, token_header
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.checkpoint import no_larger_than
from timbrel_training.model import ModelConfig, NoteTransformer, without_former
from timbrel_training.timbre.map import MapPoint, TimbreMap
from timbrel_training.tokens.store import TokenHeader
from timbrel_training.tokens.table import TokenTable

N_VERIFIED_NOTES = 2
"""Notes that the PyTorch model is compared with the bundle's graphs on."""


@dataclass(frozen=True)
class NoteRanges:
    """The ranges of what a model may be asked for; both ends belong to each."""

    pitch: tuple[int, int]  # MIDI note numbers
    velocity: tuple[int, int]
    held_frames: tuple[int, int]


@dataclass(frozen=True)
class Base:
    """Holds an open bundle whose decoder stands as a PyTorch module; codec and timbre encoder stay graphs."""

    bundle: Bundle
    model: NoteTransformer
    chart: TimbreMap

    @classmethod
    def open(cls, folder: Path) -> Base:
        """Opens a bundle to fine-tune. Raises BundleError: it is none, or a file is missing or altered;
        ExportError: its weights do not fit any model that this timbrel can build."""
        bundle = Bundle.open(folder)
        bundle.require((DECODER_STEP, *WEIGHTS, TIMBRE_MAP))
        return cls(bundle, _load_model(bundle), published_map(bundle))

    @property
    def header(self) -> TokenHeader:
        """Describes the codes that the bundle's codec makes."""
        return token_header(self.bundle, self.model.config)

    @property
    def ranges(self) -> NoteRanges:
        """The ranges of what the bundle's model writes."""
        ranges, header = written_ranges(self.bundle.manifest), self.header
        return NoteRanges(
            pitch=(ranges.pitch_min, ranges.pitch_max),
            velocity=(ranges.velocity_min, ranges.velocity_max),
            held_frames=(header.held_frames(ranges.seconds_min), header.held_frames(ranges.seconds_max)),
        )

    def verify(self, table: TokenTable, points: NDArray[np.float32]) -> None:
        """Makes sure that the PyTorch model is the bundle's, by running both on the shortest of a table's
        notes [N], at their points of the map [N, 2]. Raises ExportError: it computes something else: the
        bundle is of another timbrel."""
        rows = np.argsort(table.n_frames, kind="stable")[:N_VERIFIED_NOTES]
        notes = sample_notes(table, points, rows, self.model.config.max_frames)
        try:
            bundle_parity.check_decoder(self.bundle, DECODER_STEP, self.model, notes)
        except ExportError as error:
            raise ExportError(
                f"{self.bundle.path}: its weights give another model here than in its graphs ({error}); "
                "fine-tune with the timbrel that exported it, or export it again"
            ) from error


def write_bundle(
    base: Base,
    model: NoteTransformer,
    points: Sequence[MapPoint],
    references: Sequence[pb.TimbreReference],
    training: pb.TrainingInfo,
    notes: Sequence[SampleNote],
    out_dir: Path,
    name: str,
) -> pb.Manifest:
    """Writes the bundle `out_dir`: whole, or not at all; an older bundle there is replaced.

    Graphs hold no weights, so those of the base serve the new weights as they are; so do its codec and its
    timbre encoder, which were not trained. A model card or picture of the base is left behind: it tells of
    the base. Points and references are those of the new instruments, which join the base's own. Raises
    ExportError: a weight is not finite; ParityError: on these notes the graphs compute something else with
    these weights than the model does.
    """
    shipped = onnx_export.as_shipped(model)
    with bundle_folder.new_bundle(out_dir) as folder:
        for file in (*GRAPHS, *WEIGHTS):
            if file in base.bundle and file != MODEL_WEIGHTS:
                shutil.copyfile(base.bundle.file(file), folder / file)
        onnx_export.save_weights(shipped, folder / MODEL_WEIGHTS, asdict(shipped.config))
        new_points = (pb.TimbrePoint(**asdict(point)) for point in points)
        longer_map = pb.TimbreMap(points=[*base.bundle.timbre_map.points, *new_points])
        save_timbre_map(longer_map, folder / TIMBRE_MAP)
        if (known := base.bundle.timbre_references) is not None:
            longer = pb.TimbreReferences()
            longer.CopyFrom(known)
            longer.references.extend(references)
            write_message(longer, folder / TIMBRE_REFERENCES)
        kept = {part: getattr(base.bundle.manifest, part) for part in ("codec", "model", "ranges")}
        revision = bundle_folder.git_revision()
        described = bundle_folder.describe_bundle(folder, name, revision, training=training, **kept)
        save_manifest(described, folder / MANIFEST)
        parity = bundle_parity.check_decoders(bundle_folder.open_written(folder), shipped, notes)
        parity.max_audio_difference = base.bundle.manifest.parity.max_audio_difference  # its codec's still
        described.parity.CopyFrom(parity)
        save_manifest(described, folder / MANIFEST)
    return described


def _load_model(bundle: Bundle) -> NoteTransformer:
    path = bundle.file(MODEL_WEIGHTS)
    try:
        with safe_open(path, framework="pt") as file:
            fields = json.loads((file.metadata() or {})[onnx_export.CONFIG_KEY])
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        with no_larger_than(path):
            model = NoteTransformer(ModelConfig(**without_former(fields)))
        model.load_state_dict(tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise ExportError(
            f"{path}: not the weights of a model that this timbrel knows ({reason}); "
            "fine-tune with the timbrel that exported it"
        ) from error
    return model.eval()
