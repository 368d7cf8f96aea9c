"""EnCodec's decoder as a client streams it, against the package's own decoder on whole notes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from simple_notes import SyntheticSource

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, CodecStream
from timbrel_export.bundle_folder import describe_bundle
from timbrel_export.codec_graphs import export_codec
from timbrel_export.onnx_export import round_to_half
from timbrel_training.codec.encodec import EncodecCodec, EncodecConfig, EncodecSizes, make_codec
from timbrel_training.codec.registry import codec_in_bundle
from timbrel_training.loop import LoopConfig
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.render import render_dataset

SMALL = EncodecSizes(24_000, (5, 3), 8, n_residual_layers=2, n_lstm_layers=0, dimension=16, codebook_size=64)
TOLERANCE = 1e-4

pytestmark = pytest.mark.slow


def random_codec(sizes: EncodecSizes) -> EncodecCodec:
    """Weights as the package draws them, the last ones larger: its audio is loud."""
    torch.manual_seed(0)
    codec = EncodecCodec(sizes)
    for layer in codec.quantizer.vq.layers:
        layer._codebook.embed.normal_()
    codec.decoder.model[-1].conv.conv.weight.mul_(4.0)
    return codec


def trained_codec(folder: Path) -> EncodecCodec:
    source = SyntheticSource(pitches=range(60, 62), n_draws=2, sample_rate=24_000, max_held=0.3)
    render_dataset(source, folder / "notes", jobs=1)
    loop = LoopConfig(n_steps=10, n_warmup=2, ema_decay=0.9, learning_rate=3e-3)
    config = EncodecConfig("none", sizes=SMALL, loop=loop, batch_size=2, seconds=0.2, discriminator_filters=2)
    codec = make_codec(config, NoteDataset(folder / "notes"), folder / "codec")
    assert codec is not None
    return codec


@pytest.fixture(scope="module", params=["Meta's form", "trained, no LSTM"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[EncodecCodec, CodecDecoder]:
    """A codec, and what a client makes of its bundle."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("bundle")
    if request.param == "Meta's form":
        codec = random_codec(EncodecSizes(pad_mode="reflect"))
    else:
        codec = trained_codec(tmp_path_factory.mktemp("trained"))
    round_to_half(codec)
    spec = export_codec(codec, folder)
    manifest = describe_bundle(folder, "random", "")
    manifest.codec.CopyFrom(spec)
    again = codec_in_bundle(folder / "codec.safetensors")
    assert isinstance(again, EncodecCodec) and again.config == codec.config
    return codec, CodecDecoder(Bundle(folder, manifest, verify=True), n_threads=1)


def pushed(
    stream: CodecStream, codes: npt.NDArray[np.uint16], lengths: Iterable[int]
) -> npt.NDArray[np.float32]:
    """A note's audio, its frames given so many at a time."""
    at, pieces = 0, []
    for length in lengths:
        pieces.append(stream.push(codes[at : at + length]))
        if (at := at + length) >= len(codes):
            break
    return np.concatenate([*pieces, stream.finish()])


def test_a_stream_is_the_packages_decoder(pair: tuple[EncodecCodec, CodecDecoder]) -> None:
    codec, decoder = pair
    random = np.random.default_rng(0)
    peak = 0.0
    for n_frames in (codec.n_held + 1, 60):
        codes = random.integers(0, codec.codebook_size, (n_frames, codec.n_codebooks)).astype(np.uint16)
        given = torch.from_numpy(codes.astype(np.int64))[None]
        latents = codec.quantizer.decode(given.permute(2, 0, 1))
        whole = codec.decoder(latents)[0, 0].numpy()
        assert len(whole) == n_frames * codec.hop_length
        peak = max(peak, float(np.abs(whole).max()))
        for lengths in (itertools.repeat(1), iter(lambda: int(random.integers(1, 12)), 0), [n_frames]):
            streamed = pushed(decoder.stream(), codes, lengths)
            np.testing.assert_allclose(streamed, whole, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(decoder.decode(codes), whole, atol=TOLERANCE, rtol=0)
    assert peak > 100 * TOLERANCE


def test_notes_shorter_than_what_is_held_back_and_swelling_ones(
    pair: tuple[EncodecCodec, CodecDecoder],
) -> None:
    codec, decoder = pair
    random = np.random.default_rng(1)
    for n_frames in (1, 3, 20):
        codes = random.integers(0, codec.codebook_size, (n_frames, codec.n_codebooks)).astype(np.uint16)
        level = random.uniform(-20.0, 6.0, n_frames).astype(np.float32)
        given = torch.from_numpy(codes.astype(np.int64))[None]
        wanted = codec.decode(given, level_db=torch.from_numpy(level)[None])[0].numpy()
        np.testing.assert_allclose(decoder.decode(codes, level_db=level), wanted, atol=TOLERANCE, rtol=0)
