"""Writes a bundle, or refuses to."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import write_message
from timbrel_bundle.manifest import save_manifest
from timbrel_bundle.timbre_map import save_timbre_map
from timbrel_export import bundle_folder, bundle_parity, codec_graphs, model_graphs, onnx_export
from timbrel_export.errors import ExportError
from timbrel_export.sample_note import SampleNote, find_cache_scales
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.encoder import TimbreEncoder


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a bundle, as training leaves them."""

    model: NoteTransformer
    """Stage 2."""
    codec: Codec
    """The model writes its codes."""
    timbre_encoder: TimbreEncoder
    """Stage 1, at the codec's sample rate."""
    timbre_map: pb.TimbreMap
    training: pb.TrainingInfo
    """How the model was trained."""
    ranges: pb.RequestRanges
    """What the model was trained on. Keys may be held for longer where the codec goes on without it."""
    sample_notes: Sequence[SampleNote]
    """Real notes to compare graphs and modules on; a handful of different lengths and pitches."""
    timbre_references: pb.TimbreReferences | None = None
    """By what the map's instruments are recognised; None: they are not."""


def export_bundle(
    parts: Parts, out_dir: Path, *, name: str = "timbrel", git_revision: str = ""
) -> pb.Manifest:
    """Writes a bundle whose graphs agree with the PyTorch modules: whole, or not at all; an older bundle in
    `out_dir` is replaced. Returns the manifest written; `git_revision` is of the code that exports.

    Raises:
        ExportError: the parts do not fit together, no sample notes, a name that no bundle may have, or
            out_dir holds something else.
        BundleError: a text of the map, the references or the training is one that no bundle may have.
        InterfaceError: a graph's inputs, outputs or weights differ from the bundle format's.
        ParityError: a graph computes something else than its module.
        WriteError: the disk is full.
    """
    bundle_folder.check_texts({"--name": name})
    _check_parts(parts)
    bundle_folder.check_free(out_dir)
    notes = parts.sample_notes
    model, codec = onnx_export.as_shipped(parts.model), onnx_export.as_shipped(parts.codec)
    encoder = onnx_export.as_shipped(parts.timbre_encoder)
    with bundle_folder.new_bundle(out_dir) as folder:
        codec_spec = write_graphs(model, codec, encoder, notes, folder)
        save_timbre_map(parts.timbre_map, folder / layout.TIMBRE_MAP)
        if parts.timbre_references is not None:
            write_message(parts.timbre_references, folder / layout.TIMBRE_REFERENCES)
        manifest = bundle_folder.describe_bundle(
            folder,
            name,
            git_revision,
            codec=codec_spec,
            model=bundle_folder.describe_model(model),
            ranges=parts.ranges,
            training=parts.training,
        )
        bundle_folder.lengthen_holds(manifest)
        save_manifest(manifest, folder / layout.MANIFEST)
        written = bundle_folder.open_written(folder)
        parity = bundle_parity.check_bundle(written, model, codec, encoder, notes)
        manifest.parity.CopyFrom(parity)
        save_manifest(manifest, folder / layout.MANIFEST)
    return manifest


def replace_timbre_encoder(
    bundle: Bundle,
    encoder: TimbreEncoder,
    references: pb.TimbreReferences,
    heard: Sequence[pb.DataSource],
    out_dir: Path,
    *,
    name: str = "",
    git_revision: str = "",
) -> pb.Manifest:
    """Writes a bundle once more with another timbre encoder; what plays stays to the bit.

    The encoder hears audio at the bundle's sample rate and has its map's instruments, by which its
    `references` are named; `heard` is what it learnt from, `name` the new bundle's, or empty. A model card,
    which judges the old encoder, is left behind. Whole or not at all; raises as `export_bundle`.
    """
    bundle_folder.check_texts({"--name": name})
    bundle_folder.check_free(out_dir)
    encoder, old = onnx_export.as_shipped(encoder), bundle.manifest
    if encoder.sample_rate != old.codec.sample_rate:
        raise ExportError(
            f"the timbre encoder hears audio at {encoder.sample_rate} Hz, {bundle.path} has audio at "
            f"{old.codec.sample_rate} Hz: name the folder of a training that began from this bundle"
        )
    new = {layout.TIMBRE_WEIGHTS, layout.TIMBRE_ENCODER, layout.TIMBRE_REFERENCES}
    with bundle_folder.new_bundle(out_dir) as folder:
        _write_timbre_encoder(encoder, folder)
        onnx_export.drop_unused_weights(folder, keep=layout.CODEC_WEIGHTS)
        for file in old.files:
            if file.name not in new:
                shutil.copyfile(bundle.file(file.name), folder / file.name)
        write_message(references, folder / layout.TIMBRE_REFERENCES)
        kept = {part: getattr(old, part) for part in ("codec", "model", "ranges", "training", "parity")}
        manifest = bundle_folder.describe_bundle(folder, name or old.name, git_revision, **kept)
        known = {(source.name, source.licence): source for source in manifest.training.sources}
        for each in heard:
            if (same := known.get((each.name, each.licence))) is None:
                manifest.training.sources.append(each)
            else:  # the encoder may have heard more of it than plays
                same.n_instruments = max(same.n_instruments, each.n_instruments)
                same.n_notes = max(same.n_notes, each.n_notes)
        save_manifest(manifest, folder / layout.MANIFEST)
        written = bundle_folder.open_written(folder)
        bundle_parity.check_timbre_encoder(written, encoder, list(_sounds(encoder.sample_rate)))
    return manifest


def _sounds(sample_rate: int) -> Iterator[NDArray[np.float32]]:
    """A few sounds [S] that two encoders may be compared on: harmonics that die away, in noise."""
    rng = np.random.default_rng(0)
    for seconds, hertz in ((0.1, 55.0), (0.5, 220.0), (1.5, 880.0), (4.0, 440.0)):
        time = np.arange(round(seconds * sample_rate)) / sample_rate
        tones = sum(np.sin(2.0 * np.pi * hertz * k * time) / k for k in range(1, 9))
        yield (0.1 * np.exp(-time) * (tones + 0.01 * rng.standard_normal(len(time)))).astype(np.float32)


def _write_timbre_encoder(encoder: TimbreEncoder, folder: Path) -> None:
    about = {
        "encoder": dataclasses.asdict(encoder.config),
        "sample_rate": encoder.sample_rate,
        "n_instruments": len(encoder.places),
    }
    weights = onnx_export.save_weights(encoder, folder / layout.TIMBRE_WEIGHTS, about)
    codec_graphs.export_timbre_encoder(encoder, folder / layout.TIMBRE_ENCODER, weights)


def write_graphs(
    model: NoteTransformer,
    codec: Codec,
    timbre_encoder: TimbreEncoder,
    notes: Sequence[SampleNote],
    folder: Path,
) -> pb.CodecSpec:
    """Writes all graphs and weights of a bundle, unchecked, of modules rounded to fp16 already.

    The notes tell how large the numbers in a cache of 8 bits get.
    """
    weights = onnx_export.save_weights(model, folder / layout.MODEL_WEIGHTS, dataclasses.asdict(model.config))
    model_graphs.export_condition_encoder(model, folder / layout.CONDITION_ENCODER, weights)
    model_graphs.export_decoder_step(model, folder / layout.DECODER_STEP, weights)
    model_graphs.export_decoder_step_portable(model, folder / layout.DECODER_STEP_PORTABLE, weights)
    scales = find_cache_scales(model, notes)
    model_graphs.export_decoder_step_int8(model, folder / layout.DECODER_STEP_INT8, weights, scales)
    model_graphs.export_condition_encoder(
        model, folder / layout.CONDITION_ENCODER_HALF, weights, torch.float16
    )
    model_graphs.export_decoder_step_half(model, folder / layout.DECODER_STEP_HALF, weights)
    codec_spec = codec_graphs.export_codec(codec, folder)
    _write_timbre_encoder(timbre_encoder, folder)
    onnx_export.drop_unused_weights(folder, keep=layout.CODEC_WEIGHTS)
    return codec_spec


def _check_parts(parts: Parts) -> None:
    model, codec, timbre_encoder = parts.model, parts.codec, parts.timbre_encoder
    for field in ("n_codebooks", "codebook_size"):
        if getattr(model.config, field) != getattr(codec, field):
            raise ExportError(
                f"the model has {field} = {getattr(model.config, field)}, "
                f"the codec {getattr(codec, field)}: they were not trained together"
            )
    if timbre_encoder.sample_rate != codec.sample_rate:
        raise ExportError(
            f"the timbre encoder hears audio at {timbre_encoder.sample_rate} Hz, the codec's is at "
            f"{codec.sample_rate} Hz: train stage 1 on notes at the codec's rate"
        )
    if model.config.width_per_head % model.config.HEAD_DIM_MULTIPLE:
        raise ExportError(
            f"the model's head_dim is {model.config.width_per_head}; "
            f"GroupQueryAttention needs a multiple of {model.config.HEAD_DIM_MULTIPLE}"
        )
    if not parts.sample_notes:
        raise ExportError("no sample notes: the graphs are compared on real notes before a bundle is written")
