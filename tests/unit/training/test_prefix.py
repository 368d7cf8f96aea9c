"""The decoder-only model: what sets it apart from the encoder-decoder one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from timbrel_training.generation import write_notes
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.model.sampling import Sampling
from timbrel_training.oracle import generate

CROSS = ModelConfig(
    codebook_size=14,
    n_codebooks=3,
    d_model=32,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=48,
    n_encoder_layers=1,
    n_decoder_layers=3,
    max_frames=15,
)
PREFIX = replace(CROSS, conditioning="prefix", n_encoder_layers=0)
D = CROSS.d_model


def build(config: ModelConfig) -> NoteTransformer:
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = NoteTransformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
            model.decoder.heads.bias[0, config.layout.eos_id] = 2.0  # so that some notes end early
    return model


def layer_parameters(config: ModelConfig) -> int:
    """Of one more decoder layer."""
    more = replace(config, n_decoder_layers=config.n_decoder_layers + 1)
    return NoteTransformer(more).n_parameters - NoteTransformer(config).n_parameters


def test_a_layer_lacks_cross_attention_and_nothing_else() -> None:
    head, d_kv = CROSS.width_per_head, CROSS.n_kv_heads * CROSS.width_per_head
    attention = D * (CROSS.n_heads * head + 2 * d_kv) + CROSS.n_heads * head * D
    feed_forward = 2 * D * CROSS.d_feed_forward + CROSS.d_feed_forward + D
    norm = 2 * D
    assert layer_parameters(PREFIX) == attention + feed_forward + 2 * norm
    assert layer_parameters(CROSS) == layer_parameters(PREFIX) + attention + norm


def test_outside_of_the_layers_only_the_encoder_is_missing() -> None:
    encoder_layer = layer_parameters(PREFIX)  # the same parts, masked or not
    outside = [
        NoteTransformer(config).n_parameters - config.n_decoder_layers * layer_parameters(config)
        for config in (CROSS, PREFIX)
    ]
    assert outside[0] - outside[1] == encoder_layer + 2 * D  # its layer, and the norm of its output


@torch.no_grad()
def test_the_prefix_is_masked_too() -> None:
    model = build(PREFIX)
    read = torch.full((1, 1, 3), CROSS.layout.bos_id)
    timbre, gate = torch.tensor([[0.3, -0.2]]), torch.ones(1, 1, dtype=torch.int64)
    memories = [
        model.cross_kv(model.condition(timbre, torch.tensor([60]), torch.tensor([velocity])))
        for velocity in (40.0, 120.0)
    ]
    for (keys, values), (other_keys, other_values) in zip(*memories, strict=True):
        for one, other in ((keys, other_keys), (values, other_values)):
            # Timbre and pitch stand before velocity.
            torch.testing.assert_close(one[:, :, :2], other[:, :, :2])
            assert not torch.allclose(one[:, :, 2], other[:, :, 2], atol=1e-3)
    first = [model(timbre, torch.tensor([60]), torch.tensor([v]), read, gate) for v in (40.0, 120.0)]
    assert not torch.allclose(*first, atol=1e-3)


@torch.no_grad()
def test_a_step_leaves_the_caches_it_was_given_alone() -> None:
    model = build(PREFIX)
    condition = model.condition(torch.tensor([[0.1, 0.2]]), torch.tensor([60]), torch.tensor([90.0]))
    caches, memories = model.empty_caches(1), model.cross_kv(condition)
    read, gate = torch.full((1, 3), CROSS.layout.bos_id), torch.ones(1, dtype=torch.int64)
    _, written = model.step(read, gate, torch.tensor([2], dtype=torch.int32), caches, memories)
    for (keys, values), (new_keys, new_values) in zip(caches, written, strict=True):
        assert keys.shape == new_keys.shape == (1, 2, CROSS.max_positions, CROSS.width_per_head)
        assert not keys.any() and not values.any()
        for new in (new_keys, new_values):
            assert new[:, :, 2].abs().min() > 0
            assert not new[:, :, :2].any() and not new[:, :, 3:].any()


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("conditioning", ["cross", "prefix"])
def test_notes_written_with_a_cache_are_the_oracles(conditioning: str, n_kv_heads: int) -> None:
    model = build(replace(CROSS, conditioning=conditioning, n_kv_heads=n_kv_heads))
    timbre = np.array([[0.1, 0.2], [-0.5, 0.3], [0.7, -0.1]], dtype=np.float32)
    pitch, velocity, held = np.array([60, 40, 72]), np.array([30, 100, 127], np.float32), np.array([3, 9, 1])
    notes = write_notes(model, timbre, pitch, velocity, held)
    for row, codes in enumerate(notes):
        point = (float(timbre[row, 0]), float(timbre[row, 1]))
        expected = generate(model, point, int(pitch[row]), float(velocity[row]), int(held[row]))
        assert np.array_equal(codes, expected.codes)
    drawn = [write_notes(model, timbre, pitch, velocity, held, Sampling(), seed) for seed in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))
