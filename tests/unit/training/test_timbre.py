"""Stage 1: the encoder, the losses that shape the map, and a tiny training from tokens to files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from timbrel_training.codec.interface import Codec
from timbrel_training.config import load_config
from timbrel_training.errors import CheckpointError, ConfigError
from timbrel_training.notes.split import Split
from timbrel_training.timbre import losses
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig
from timbrel_training.timbre.map import TimbreMap, measure, read_map
from timbrel_training.timbre.model import TimbreDecoder
from timbrel_training.timbre.train import load_encoder, train_timbre
from timbrel_training.tokens.table import TokenTable

CONFIG = TimbreEncoderConfig(n_frames=20, patch_frames=5, width=16, n_layers=2, n_heads=2)


@pytest.fixture(params=["patches", "strided"])
def encoder(request: pytest.FixtureRequest) -> TimbreEncoder:
    torch.manual_seed(0)
    made = TimbreEncoder(dataclasses.replace(CONFIG, trunk=request.param), latent_dim=6)
    torch.nn.init.normal_(made.head.weight)  # as if trained: points all over the plane
    return made.eval()


def test_points_lie_in_the_unit_disc_for_notes_of_any_length(encoder: TimbreEncoder) -> None:
    for n_frames in (1, 7, 20, 55):
        points = encoder(5 * torch.randn(9, n_frames, 6), torch.full((9,), n_frames))
        assert points.shape == (9, 2)
        assert points.square().sum(dim=1).max() <= 1 + 1e-5


def test_what_lies_behind_a_note_is_ignored(encoder: TimbreEncoder) -> None:
    latents = torch.randn(3, 30, 6)
    n_frames = torch.tensor([4, 11, 20])
    other = latents.clone()
    for row, frames in enumerate(n_frames):
        other[row, int(frames) :] = 9.0
    assert torch.allclose(encoder(latents, n_frames), encoder(other, n_frames), atol=1e-6)
    cropped = encoder(latents[:1, :4], n_frames[:1])
    assert torch.allclose(cropped, encoder(latents[:1], n_frames[:1]), atol=1e-6)


def test_encoder_can_be_traced_with_any_length(encoder: TimbreEncoder) -> None:
    batch, frames = torch.export.Dim("batch", min=1), torch.export.Dim("frames", min=1)
    program = torch.export.export(
        encoder,
        (torch.randn(2, 9, 6), torch.tensor([9, 5])),
        dynamic_shapes=({0: batch, 1: frames}, {0: batch}),
    ).module()
    for n_frames in (3, 31):
        latents, lengths = torch.randn(4, n_frames, 6), torch.tensor([1, 2, 3, n_frames])
        assert torch.allclose(program(latents, lengths), encoder(latents, lengths), atol=1e-6)


def test_bad_shapes_of_the_encoder_are_refused() -> None:
    with pytest.raises(ConfigError, match="trunk"):
        TimbreEncoderConfig(trunk="lstm")
    with pytest.raises(ConfigError, match="multiple of 5"):
        TimbreEncoderConfig(n_frames=151)


def test_neighbours_attract_within_and_repel_between_instruments() -> None:
    mean = torch.tensor([[0.0, 0.0], [0.3, 0.4], [0.0, 0.1]], requires_grad=True)
    attraction, repulsion = losses.neighbours(mean, torch.tensor([0, 0, 1]), margin=0.2)
    assert attraction.item() == pytest.approx(0.25)
    assert repulsion.item() == pytest.approx(0.1**2 / 2)  # one of two pairs of strangers is too close
    (attraction + repulsion).backward()
    assert torch.isfinite(mean.grad).all()


def test_only_what_lies_outside_the_disc_is_penalised() -> None:
    assert losses.outside_disc(torch.tensor([[0.6, 0.8]])).item() == pytest.approx(0.0, abs=1e-6)
    assert losses.outside_disc(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).item() == pytest.approx(2.0)


def test_divergence_is_zero_for_the_prior_alone() -> None:
    prior = torch.full((3, 2), np.log(losses.PRIOR_DEVIATION**2), dtype=torch.float32)
    assert losses.divergence(torch.zeros(3, 2), prior).item() == pytest.approx(0.0, abs=1e-6)
    assert losses.divergence(torch.full((3, 2), 0.5), prior).item() > 0.1
    assert losses.divergence(torch.zeros(3, 2), prior - 2.0).item() > 0.1


def test_the_adversary_learns_while_the_encoder_unlearns() -> None:
    mean = torch.tensor([[0.1, 0.2]], requires_grad=True)
    plain = mean.detach().clone().requires_grad_(True)
    (2 * losses.GradientReversal.apply(mean)).sum().backward()
    (2 * plain).sum().backward()
    assert torch.equal(mean.grad, -plain.grad)


def test_segments_are_means_of_a_notes_own_frames() -> None:
    decoder = TimbreDecoder(latent_dim=2, n_frames=20, n_segments=4)
    latents = torch.arange(20.0)[None, :, None].expand(1, 20, 2)
    means, present = decoder.segments(latents, torch.tensor([5]))
    edges = decoder.edges.tolist()
    assert edges[0] == 0 and edges[-1] == 20
    assert means[0, 0, 0].item() == pytest.approx((edges[1] - 1) / 2)
    assert present[0, :, 0].tolist() == [1.0 if start < 5 else 0.0 for start in edges[:-1]]
    assert decoder(torch.zeros(1, 2), torch.tensor([60]), torch.tensor([9]), torch.tensor([5])).shape == (
        1,
        4,
        2,
    )


def test_figures_of_a_perfect_map(table: TokenTable) -> None:
    corners = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]], dtype=np.float32)
    jitter = 0.01 * np.random.default_rng(0).standard_normal((table.n_notes, 2)).astype(np.float32)
    figures = measure(corners[table.instrument] + jitter, table)
    assert figures.accuracy == figures.training_accuracy == 1.0
    assert figures.spacing == pytest.approx(1.0, abs=0.02)
    assert figures.separation > 30


def test_training_writes_a_map_that_tells_instruments_apart(
    tmp_path: Path, table: TokenTable, latents_codec: Codec
) -> None:
    codec = latents_codec
    config = load_config("tiny", ["timbre.loop.n_steps=150", "timbre.loop.learning_rate=0.005"]).timbre
    figures = train_timbre(config, table, codec, tmp_path, torch.device("cpu"))
    assert figures.accuracy > 0.8
    written = json.loads((tmp_path / "timbre_map.json").read_text())["points"]
    assert [point["instrument"] for point in written] == list(table.instruments)
    training = (table.split == Split.TRAIN) & (table.instrument == 0)
    assert written[0]["pitch_min"] == table.pitch[training].min() == 61
    chart, points = read_map(tmp_path)
    assert points.shape == (table.n_notes, 2)
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-5
    assert chart == TimbreMap.from_points(points, table)
    assert (tmp_path / "map.png").stat().st_size > 1000
    encoder = load_encoder(tmp_path)
    codes, lengths = table.crops(range(5), encoder.config.n_frames)
    found = encoder(codec.latents(torch.from_numpy(codes)), torch.from_numpy(lengths))
    assert np.allclose(found.detach().numpy(), points[:5], atol=1e-5)


def test_interrupted_training_of_the_map_ends_with_the_same_map(
    tmp_path: Path, table: TokenTable, latents_codec: Codec
) -> None:
    codec, device = latents_codec, torch.device("cpu")
    config = load_config("tiny").timbre
    train_timbre(config, table, codec, tmp_path / "whole", device)
    sitting = dataclasses.replace(config, loop=dataclasses.replace(config.loop, max_minutes=1e-9))
    train_timbre(sitting, table, codec, tmp_path / "parts", device)
    train_timbre(config, table, codec, tmp_path / "parts", device)
    for name in ("timbre_encoder.safetensors", "note_timbres.npy", "timbre_map.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_a_missing_map_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="train stage 1 first"):
        read_map(tmp_path)
    with pytest.raises(CheckpointError, match="train it first"):
        load_encoder(tmp_path)
