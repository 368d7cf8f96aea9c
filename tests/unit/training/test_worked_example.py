"""The modules that the model is built of reproduce worked numeric examples of the Transformer's parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from timbrel_training.model.attention import (
    CrossAttention,
    SelfAttention,
    attend,
    attend_cached,
    attend_one,
    merge_heads,
    split_heads,
)
from timbrel_training.model.config import ModelConfig
from timbrel_training.model.embeddings import (
    OutputHeads,
    SinusoidalPositions,
    TokenEmbedding,
    sinusoidal_table,
)
from timbrel_training.model.layers import EncoderLayer, FeedForward, Residual

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "worked_example.json").read_text())
CONFIG = ModelConfig(
    codebook_size=8,
    n_codebooks=1,
    d_model=4,
    n_heads=2,
    n_kv_heads=2,
    head_dim=3,
    d_feed_forward=8,
    n_encoder_layers=1,
    n_decoder_layers=1,
    max_frames=2,
    norm="post",
    activation="relu",
    norm_eps=0.0,
)


def close(found: Tensor, expected: Any) -> None:
    """Equal to the four decimals that the examples are printed with."""
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-4, rtol=0)


def sequence(section: dict[str, Any], name: str = "x") -> Tensor:
    """[1, positions, d]."""
    return torch.tensor(section[name])[None]


def projection(section: dict[str, Any], *names: str) -> Tensor:
    """Weights per head [heads, d, head_dim], as one nn.Linear's weight [names * heads * head_dim, d]."""
    return torch.cat([torch.tensor(section[name]).permute(0, 2, 1).flatten(0, 1) for name in names])


@torch.no_grad()
def self_attention(section: dict[str, Any], *, causal: bool) -> SelfAttention:
    module = SelfAttention(CONFIG, causal=causal)
    module.qkv.weight.copy_(projection(section, "WQ", "WK", "WV"))
    module.out.weight.copy_(torch.tensor(section["WO"]).T)
    return module


@torch.no_grad()
def fill_feed_forward(module: FeedForward, section: dict[str, Any]) -> FeedForward:
    module.up.weight.copy_(torch.tensor(section["W1"]).T)
    module.up.bias.copy_(torch.tensor(section["b1"]))
    module.down.weight.copy_(torch.tensor(section["W2"]).T)
    module.down.bias.copy_(torch.tensor(section["b2"]))
    return module


def test_positional_encoding() -> None:
    section = EXAMPLE["positional_encoding"]
    expected = [section["expected"]["0"], section["expected"]["1"]]
    width = section["d_model"]
    close(sinusoidal_table(2, width), [[float(value) for value in row] for row in expected])
    close(SinusoidalPositions(2, width)(torch.tensor([1])), [expected[1]])


def test_attention_scores() -> None:
    section = EXAMPLE["attention_scores"]
    query, key = torch.tensor(section["Q"]), torch.tensor(section["K"])
    weights = torch.softmax(torch.tensor(section["expected_QKT"]) / 2**0.5, dim=1)
    identity = torch.eye(3)[None, None]  # as values: what is attended to is then the weights themselves
    found = attend(query[None, None], key[None, None], identity, causal=False)
    torch.testing.assert_close(found[0, 0], weights, atol=1e-4, rtol=0)


@torch.no_grad()
def test_encoder_self_attention() -> None:
    section = EXAMPLE["encoder_self_attention"]
    module = self_attention(section, causal=False)
    query, key, value = module.qkv(sequence(section)).split(module.sizes, dim=2)
    query, key, value = (split_heads(part, 2) for part in (query, key, value))
    identity = torch.eye(2).expand(1, 2, 2, 2)
    close(attend(query, key, identity, causal=False)[0], section["expected"]["weights"])
    attended = attend(query, key, value, causal=False)
    close(attended[0], section["expected"]["Z"])
    close(module.out(merge_heads(attended))[0], section["expected"]["output"])
    close(module(sequence(section))[0], section["expected"]["output"])


@torch.no_grad()
def test_residual_layer_norm() -> None:
    section = EXAMPLE["residual_layer_norm"]
    x = sequence(section)
    close(Residual(CONFIG).join(x, x)[0], section["expected"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["feed_forward", "decoder_feed_forward"])
def test_feed_forward(name: str) -> None:
    section = EXAMPLE[name]
    close(fill_feed_forward(FeedForward(CONFIG), section)(sequence(section))[0], section["expected"])


@torch.no_grad()
def test_post_norm_encoder_layer() -> None:
    attention = EXAMPLE["encoder_self_attention"]
    layer = EncoderLayer(CONFIG)
    layer.self_attention = self_attention(attention, causal=False)
    fill_feed_forward(layer.feed_forward, EXAMPLE["feed_forward"])
    close(layer(sequence(attention))[0], EXAMPLE["post_norm_encoder_layer"]["expected"])


@torch.no_grad()
def test_decoder_self_attention_at_once_and_against_a_cache() -> None:
    section = EXAMPLE["decoder_self_attention"]
    module = self_attention(section, causal=True)
    x = sequence(section)
    empty = torch.full((1, 2, 5, 3), 9.0)  # positions that nothing was written to must not matter
    cached, _ = module.step(x, (empty, empty), torch.tensor([0], dtype=torch.int32), attend_cached)
    for output in (module(x), cached):
        close(output[0], section["expected"]["output"])
        close(Residual(CONFIG).join(x, output)[0], section["expected"]["layer_norm_of_residual"])


@torch.no_grad()
def test_cross_attention_at_once_and_by_steps() -> None:
    section = EXAMPLE["cross_attention"]
    module = CrossAttention(CONFIG)
    module.query.weight.copy_(projection(section, "WQ"))
    module.key_value.weight.copy_(projection(section, "WK", "WV"))
    module.out.weight.copy_(torch.tensor(section["WO"]).T)
    x, memory = sequence(section, "x_decoder"), module.project_memory(sequence(section, "x_encoder"))
    weights = attend_one(module.query(x), memory[0], torch.eye(2).expand(1, 2, 2, 2))
    close(weights.unflatten(2, (2, 2))[0].transpose(0, 1), section["expected"]["weights"])
    for output in (module(x, memory), module.step(x, memory)):
        close(output[0], section["expected"]["output"])
        close(Residual(CONFIG).join(x, output)[0], section["expected"]["layer_norm_of_residual"])


@torch.no_grad()
def test_vocabulary_projection() -> None:
    section = EXAMPLE["vocabulary_projection"]
    layout = CONFIG.layout
    embedding, heads = TokenEmbedding(layout, CONFIG.d_model), OutputHeads(layout)
    embedding.weight.copy_(torch.tensor(section["W"]).T)
    heads.bias.copy_(torch.tensor(section["b"])[None])
    logits = heads.project(torch.tensor(section["x"]), embedding)[:, 0]
    close(logits, section["expected"]["logits"])
    close(logits.softmax(dim=1), section["expected"]["probabilities"])
    assert logits.argmax().item() == section["expected"]["argmax"]
