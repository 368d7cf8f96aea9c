"""The catalogue of designs, and SEANet as a codec."""

from __future__ import annotations

import copy

import pytest
import torch

from timbrel_posttraining.codec_comparison.designs import (
    DESIGNS,
    Design,
    SeanetCodec,
    SeanetConfig,
    designs_named,
)
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotesConfig
from timbrel_training.errors import ConfigError


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_designs_are_what_their_names_say(design: Design) -> None:
    codec = design.make_codec()
    rate = next(part for part in design.name.split("-") if part[0].isdigit())
    assert codec.frame_rate == float(rate)
    assert codec.hop_length * 48_000 % codec.sample_rate == 0, (
        "frames must be whole samples of a 48 kHz library"
    )
    if isinstance(design.codec, TimbrelNotesConfig):
        assert codec.sample_rate == 48_000
        assert design.codec.hop_length % design.codec.n_subframes == 0


def test_names_are_unique_and_found() -> None:
    assert len({design.name for design in DESIGNS}) == len(DESIGNS)
    assert designs_named([]) == list(DESIGNS)
    assert [design.name for design in designs_named(["seanet-50", "timbrel-notes-75"])] == [
        "seanet-50",
        "timbrel-notes-75",
    ]


def test_an_unknown_name_is_told_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"seanet-60: no such codec design; there are timbrel-notes-75, "):
        designs_named(["seanet-60"])


@pytest.fixture
def codec() -> SeanetCodec:
    torch.manual_seed(0)
    made = SeanetCodec(SeanetConfig(n_filters=2, latent_dim=16, n_codebooks=3, codebook_size=64))
    made.quantizer(torch.randn(4, 100, 16))  # starts the codebooks
    return made.eval().requires_grad_(False)


def test_it_is_a_codec(codec: SeanetCodec) -> None:
    codes = codec.encode(0.1 * torch.randn(2, 1000))
    assert isinstance(codec, Codec)
    assert codec.frame_rate == 75.0
    assert codes.shape == (2, codec.n_frames(1000), 3) == (2, 4, 3)
    assert codes.dtype == torch.int64 and int(codes.max()) < codec.codebook_size
    assert codec.decode(codes).shape == (2, 4 * 320)
    assert codec.silence().shape == (3,)


def test_ratios_decide_the_frame_rate() -> None:
    assert SeanetCodec(SeanetConfig(ratios=(8, 5, 4, 3), n_filters=2)).frame_rate == 50.0


def test_it_is_causal(codec: SeanetCodec) -> None:
    """Later audio changes neither earlier latents nor, through the decoder, earlier audio."""
    audio = 0.1 * torch.randn(1, 20 * 320)
    other = audio.clone()
    other[:, 10 * 320 :] = 0.1 * torch.randn(1, 10 * 320)
    first, second = codec.encoder(audio), codec.encoder(other)
    assert torch.equal(first[:, :10], second[:, :10])
    assert not torch.equal(first[:, 10:], second[:, 10:])
    assert torch.equal(codec.decoder(first)[:, : 10 * 320], codec.decoder(second)[:, : 10 * 320])


def test_it_can_be_copied() -> None:
    """The loop averages a copy: the package's own weight norm forbids that."""
    codec = SeanetCodec(SeanetConfig(n_filters=2))
    copied = copy.deepcopy(codec)
    audio = torch.randn(1, 640)
    assert torch.equal(codec.encoder(audio), copied.encoder(audio))
