"""A bundle's codec codes notes, whether its encoder is a graph or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_variants import without_codec_encoder
from data.make_tiny_bundle import make_codec
from safetensors.torch import load_file

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, CodecEncoder
from timbrel_posttraining.bundles import codec_of
from timbrel_training.codec import registry
from timbrel_training.codec.timbrel_notes import TimbrelNotes

RATE = 16_000


class HeldNotes(TimbrelNotes):
    """Says in its last codebook for how many tenths of a second it was told that the key was held."""

    def encode(
        self,
        audio: torch.Tensor,
        pitch: torch.Tensor | None = None,
        held_seconds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        codes = super().encode(audio, pitch)
        if held_seconds is not None:
            codes[:, :, -1] = (10 * held_seconds).long()[:, None]
        return codes


@pytest.fixture
def note(tiny_bundle: Path) -> np.ndarray:
    """A steady sound."""
    frame = np.array([24, 34, 39, 8], np.uint16)
    return CodecDecoder(Bundle.open(tiny_bundle), n_threads=1).decode(np.tile(frame, (40, 1)))


def test_the_graph_codes_where_there_is_one(tiny_bundle: Path, note: np.ndarray) -> None:
    bundle = Bundle.open(tiny_bundle)
    codes = codec_of(bundle).encode(note, RATE, 60.0, 1.0)
    assert np.array_equal(codes, CodecEncoder(bundle, n_threads=1).encode(note, RATE, 60.0))


def test_pytorch_codes_where_there_is_none(
    tiny_bundle: Path, note: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> TimbrelNotes:
        codec = HeldNotes(make_codec().config)
        weights = {name: tensor.float() for name, tensor in load_file(path).items()}
        codec.load_state_dict(weights, strict=False)
        return codec.eval()

    monkeypatch.setattr(registry, "codec_in_bundle", read)
    coder = codec_of(Bundle.open(without_codec_encoder(tiny_bundle, tmp_path / "bundle")))
    codes = coder.encode(note, RATE, 60.0)
    expected = codec_of(Bundle.open(tiny_bundle)).encode(note, RATE, 60.0)
    assert codes.dtype == np.uint16 and np.mean(codes == expected) > 0.95
    assert (coder.encode(np.repeat(note, 2), 2 * RATE, 60.0, 0.7)[:, -1] == 7).all()
