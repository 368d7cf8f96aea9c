"""Copies of a bundle: hearing audio, without the codec encoder's graph, holding keys on."""

from __future__ import annotations

import shutil
from pathlib import Path

from data.make_tiny_bundle import make_timbre_encoder

from timbrel_bundle.layout import CODEC_ENCODER, MANIFEST, TIMBRE_ENCODER, TIMBRE_WEIGHTS
from timbrel_bundle.manifest import bundle_hash, describe_file, load_manifest, save_manifest
from timbrel_export.codec_graphs import export_timbre_encoder
from timbrel_export.onnx_export import round_to_half, save_weights


def hearing_audio(bundle: Path, out: Path) -> Path:
    """A copy of the tiny bundle with a timbre encoder of random weights."""
    shutil.copytree(bundle, out)
    encoder = make_timbre_encoder()
    round_to_half(encoder)
    export_timbre_encoder(encoder, out / TIMBRE_ENCODER, save_weights(encoder, out / TIMBRE_WEIGHTS))
    return _described(out)


def without_codec_encoder(bundle: Path, out: Path) -> Path:
    """A copy as of a codec whose encoder is no graph."""
    shutil.copytree(bundle, out)
    (out / CODEC_ENCODER).unlink()
    return _described(out)


HOLD = 3
"""The code by which the codebooks of `holding` leave what they said as it is."""


def holding(bundle: Path, out: Path, hold_frames: int = 12, seconds_max: float = 60.0) -> Path:
    """A copy whose keys are held on: its first two codebooks move, and the model writes so many frames."""
    shutil.copytree(bundle, out)
    manifest = load_manifest(out / MANIFEST)
    codec, model = manifest.codec, manifest.model
    codec.hold[:] = [codec.codebook_size] * 2 + [HOLD] * (codec.n_codebooks - 2)
    model.codebook_delay, model.hold_frames = 0, hold_frames + codec.lead_frames
    manifest.ranges.seconds_max = seconds_max
    save_manifest(manifest, out / MANIFEST)
    return out


def _described(folder: Path) -> Path:
    """Has the manifest list the files as they are."""
    manifest = load_manifest(folder / MANIFEST)
    files = [describe_file(folder / f.name) for f in manifest.files if (folder / f.name).exists()]
    del manifest.files[:]
    manifest.files.extend(files)
    manifest.bundle_hash = bundle_hash(files)
    save_manifest(manifest, folder / MANIFEST)
    return folder
