"""The folders that training leaves behind, as the parts of a bundle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.timbre_references import load_timbre_references
from timbrel_export.errors import ExportError
from timbrel_export.exporter import Parts
from timbrel_export.sample_note import SampleNote, sample_notes
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.checkpoint import load_description
from timbrel_training.codec import registry
from timbrel_training.codec.interface import WEIGHTS_NAME, codec_hash, codes_hash
from timbrel_training.errors import CheckpointError
from timbrel_training.model import NoteTransformer
from timbrel_training.note_training.headers import FITTED_CODEC
from timbrel_training.note_training.train import MODEL, check_learnt_from, load_model
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.map import ENCODER, TimbreMap, read_chart, read_map
from timbrel_training.timbre.references import REFERENCES_FILE
from timbrel_training.timbre.train import check_same_notes, load_encoder
from timbrel_training.tokens.table import TokenTable

UNKNOWN_LICENCE = "unknown"


def load_trained(
    model_dir: Path, timbre_dir: Path, codec_dir: Path, tokens: Path, notes: Path | None, n_samples: int
) -> Parts:
    """Reads the results of all stages, and `n_samples` notes to check parity on.

    The dataset of notes knows its licence; None leaves that unknown. Raises ExportError, CheckpointError: the
    stages do not belong together; TrainingError, BundleError: something is missing or damaged.
    """
    description = load_description(model_dir, MODEL)
    table = TokenTable.read(tokens)
    if codes_hash(codec_dir) != table.header.codec_hash:
        raise ExportError(f"{codec_dir}: the tokens in {tokens} were made by another codec")
    chart, points = read_map(timbre_dir)
    if len(points) != table.n_notes:
        raise ExportError(f"{timbre_dir}: the map was made from other notes than {tokens}")
    check_learnt_from(model_dir, description, timbre_dir, tokens, table)
    fitted, given = description.get("headers"), codec_hash(codec_dir)
    if isinstance(fitted, dict) and fitted.get(FITTED_CODEC, given) != given:
        raise ExportError(
            f"{model_dir}: `timbrel train headers` fitted it to another codec than {codec_dir};"
            " name the codec/ that it left beside it"
        )
    dataset = NoteDataset(notes) if notes is not None else None
    if dataset is not None:
        check_same_notes(table, dataset)
    model = load_model(model_dir)
    licences = dataset.licences if dataset is not None else {}
    about_codec, about_encoder = (
        load_description(codec_dir, WEIGHTS_NAME),
        load_description(timbre_dir, ENCODER),
    )
    try:
        training = _training_info(description, table, licences, about_codec, about_encoder)
        ranges = _ranges(description, model)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        others = f"{timbre_dir} or {codec_dir}"
        raise CheckpointError(
            f"{model_dir}: its description is damaged, or that of {others} ({error!r}); train it again"
        ) from None
    return Parts(
        model=model,
        codec=registry.load_codec(codec_dir),
        timbre_encoder=load_encoder(timbre_dir),
        timbre_map=_timbre_map(chart),
        timbre_references=_references(timbre_dir, chart),
        training=training,
        ranges=ranges,
        sample_notes=_sample_notes(table, points, model.config.max_frames, n_samples),
    )


def load_hearing(
    timbre_dir: Path, bundle: Bundle
) -> tuple[TimbreEncoder, pb.TimbreReferences, list[pb.DataSource]]:
    """Reads a timbre encoder for a bundle's map, its references, and what it learnt from beside the bundle's
    notes. Raises ExportError: its map is another; CheckpointError: something is missing or damaged."""
    chart = read_chart(timbre_dir)
    if _timbre_map(chart) != bundle.timbre_map:
        raise ExportError(f"{timbre_dir}: its map is not that of {bundle.path}")
    info = pb.TrainingInfo()
    try:
        for source in load_description(timbre_dir, ENCODER).get("sources", ()):
            _add_source(info, source)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{timbre_dir}: damaged list of sources ({error}); train it again") from None
    return load_encoder(timbre_dir), _references(timbre_dir, chart), list(info.sources)


def _references(timbre_dir: Path, chart: TimbreMap) -> pb.TimbreReferences:
    path = timbre_dir / REFERENCES_FILE
    if not path.is_file():
        raise ExportError(f"{path}: no such file; train stage 1 again")
    return load_timbre_references(path, [point.instrument for point in chart.points])


def _timbre_map(chart: TimbreMap) -> pb.TimbreMap:
    return pb.TimbreMap(points=[pb.TimbrePoint(**asdict(point)) for point in chart.points])


def _training_info(
    description: dict[str, Any], table: TokenTable, licences: Mapping[str, str], *parts: dict[str, Any]
) -> pb.TrainingInfo:
    training = table.split == Split.TRAIN
    info = pb.TrainingInfo(
        n_steps=int(description.get("steps", 0)),
        validation_loss=float(description.get("validation", {}).get("held_out", 0.0)),
        config=str(description.get("config", "")),
    )
    for number, name in enumerate(table.sources):
        own = training & (table.source == number)
        info.sources.add(
            name=name,
            licence=licences.get(name, UNKNOWN_LICENCE),
            n_instruments=len(np.unique(table.instrument[own])),
            n_notes=int(own.sum()),
        )
    for part in (*parts, description):  # codec and timbre encoder may have learnt from more than the model
        for source in part.get("sources", ()):
            _add_source(info, source)
    return info


def _add_source(info: pb.TrainingInfo, source: Mapping[str, Any]) -> None:
    """Adds what a part learnt from beside the notes, or before them, unless it is there; where its licence is
    not known, unless its name is."""
    stated = source.get("licence", UNKNOWN_LICENCE)
    of_name = [each.licence for each in info.sources if each.name == source["name"]]
    if stated not in of_name and (stated != UNKNOWN_LICENCE or not of_name):
        counts = {name: int(source.get(name, 0)) for name in ("n_instruments", "n_notes")}
        info.sources.add(name=source["name"], licence=stated, **counts)


def _ranges(description: dict[str, Any], model: NoteTransformer) -> pb.RequestRanges:
    """Allows what the training notes covered, as far as the cap on a note's length does.

    Holds were rounded to frames: the shortest ones asked for may be half a frame shorter than they came out.
    """
    ranges, frame_rate = description["ranges"], float(description["frame_rate"])
    shortest, seconds_max = ranges["held_seconds"]
    longest = (model.config.max_frames - int(description.get("lead_frames", 0))) / frame_rate
    seconds_min = math.ceil(round(100 * (shortest - 0.5 / frame_rate), 6)) / 100
    return pb.RequestRanges(
        pitch_min=ranges["pitch"][0],
        pitch_max=ranges["pitch"][1],
        velocity_min=ranges["velocity"][0],
        velocity_max=ranges["velocity"][1],
        seconds_min=max(seconds_min, 0.01),
        seconds_max=round(min(seconds_max, longest), 3),
    )


def _sample_notes(
    table: TokenTable, points: NDArray[np.float32], max_frames: int, n_samples: int
) -> list[SampleNote]:
    """Held-out notes where there are any, at the places on the map that stage 1 gave them."""
    held_out = table.of_split(Split.HELD_OUT_CELL)
    candidates = held_out if len(held_out) else np.arange(table.n_notes)
    chosen = np.random.default_rng(0).permutation(candidates)[:n_samples]
    return sample_notes(table, points, chosen, max_frames)
