"""Copies of a bundle: with a timbre encoder that takes audio, or without the codec encoder's graph."""

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


def _described(folder: Path) -> Path:
    """Has the manifest list the files as they are."""
    manifest = load_manifest(folder / MANIFEST)
    files = [describe_file(folder / f.name) for f in manifest.files if (folder / f.name).exists()]
    del manifest.files[:]
    manifest.files.extend(files)
    manifest.bundle_hash = bundle_hash(files)
    save_manifest(manifest, folder / MANIFEST)
    return folder
