"""A bundle's codec codes notes: made again of its weights, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data.make_tiny_bundle import sample_note
from safetensors.numpy import load_file, save_file

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.layout import CODEC_WEIGHTS, MANIFEST
from timbrel_bundle.manifest import load_manifest, save_manifest
from timbrel_posttraining.bundles import NoteCoder
from timbrel_training.errors import CheckpointError

RATE = 48_000


def test_what_a_bundle_plays_is_coded_as_it_was(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    note = sample_note(np.random.default_rng(1), 44)
    audio = CodecDecoder(bundle, n_threads=1).decode(note.codes)
    coder = NoteCoder(bundle)
    codes = coder.encode(audio, RATE, float(note.pitch), 40 / 37.5)
    assert codes.dtype == np.uint16 and codes.shape == note.codes.shape
    assert np.abs(codes[:, 0].astype(int) - note.codes[:, 0]).max() <= 1  # twelfths of a semitone
    assert np.array_equal(codes[:, 1] // 4 > 0, note.codes[:, 1] // 4 > 0)  # the key goes up in this frame
    assert abs(int(codes[2, 2]) - int(note.codes[2, 2])) <= 6  # its loudness, half dB
    again = coder.encode(np.repeat(audio, 2), 2 * RATE, float(note.pitch), 40 / 37.5)
    assert np.abs(again[:, 0].astype(int) - codes[:, 0]).max() <= 1


def test_a_codec_that_is_not_known_here_names_who_reads_it(tiny_bundle: Path, tmp_path: Path) -> None:
    """Bundles of the first codec hold its weights and no config."""
    manifest = load_manifest(tiny_bundle / MANIFEST)
    manifest.git_revision = "45c80a37"
    save_manifest(manifest, tmp_path / MANIFEST)
    save_file(load_file(tiny_bundle / CODEC_WEIGHTS), tmp_path / CODEC_WEIGHTS)
    with pytest.raises(CheckpointError, match=r"codec that this timbrel can make again.* revision 45c80a37"):
        NoteCoder(Bundle.open(tmp_path, verify=False))
