"""Copies of the tiny bundle that say something else of themselves, such as that they hold keys on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

HOLD = 1023
"""The code by which the header's codebooks leave what they said as it is."""


def changed_manifest(bundle: Path, out: Path, change: Callable[[pb.Manifest], object]) -> Path:
    """A copy whose manifest says something else."""
    shutil.copytree(bundle, out)
    manifest = load_manifest(out / MANIFEST)
    change(manifest)
    save_manifest(manifest, out / MANIFEST)
    return out


def holding(bundle: Path, out: Path, hold_frames: int = 12, seconds_max: float = 60.0) -> Path:
    """A copy whose keys are held on: its first two codebooks move, and the model writes so many frames."""

    def change(manifest: pb.Manifest) -> None:
        codec, model = manifest.codec, manifest.model
        codec.hold[:] = [codec.codebook_size] * 2 + [HOLD] * (codec.n_codebooks - 2)
        model.codebook_delay, model.hold_frames = 0, hold_frames + codec.lead_frames
        manifest.ranges.seconds_max = seconds_max

    return changed_manifest(bundle, out, change)
