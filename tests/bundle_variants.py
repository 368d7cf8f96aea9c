"""A copy of the tiny bundle that holds keys on."""

from __future__ import annotations

import shutil
from pathlib import Path

from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest

HOLD = 1023
"""The code by which the header's codebooks leave what they said as it is."""


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
