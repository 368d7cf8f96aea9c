"""Cross-attention with its projections absorbed into what it attends to.

A note's condition has three positions and never changes. So the products of its keys with the query
projection, and of its values with the output projection, are made once, at admission: a step then needs
neither projection. (DeepSeek-V2, 2024, absorbs projections into the weights of latent attention likewise.)

    scores = (x W_q) K^T / sqrt(head_dim)  =  x (W_q K^T / sqrt(head_dim))  =  x read
    change = (softmax(scores) V) W_o       =  softmax(scores) (V W_o)       =  softmax(scores) write
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, cast

from torch import Tensor

from timbrel_training.model.attention import KV, CrossAttention
from timbrel_training.model.layers import CrossLayer
from timbrel_training.model.transformer import NoteTransformer


class Absorbed(NamedTuple):
    """One layer's part of a note's condition, with the projections in it; E positions, H heads."""

    read: Tensor  # [B, d, H * E]
    write: Tensor  # [B, H * E, d]


def cross_layers(model: NoteTransformer) -> list[CrossLayer]:
    """The decoder's layers."""
    return list(cast("Iterable[CrossLayer]", model.decoder.layers))


def absorb(attention: CrossAttention, memory: KV) -> Absorbed:
    """The condition's keys and values [B, n_kv_heads, E, head_dim] with the projections around them."""
    keys, values = (_per_head(attention, each) for each in memory)  # [B, H, E, head_dim]
    head_dim = keys.shape[3]
    query = attention.query.weight.unflatten(0, (attention.n_heads, head_dim))  # [H, head_dim, d]
    out = attention.out.weight.unflatten(1, (attention.n_heads, head_dim)).permute(1, 2, 0)  # likewise
    scaled = keys / math.sqrt(head_dim)
    read = _project(scaled, query).flatten(1, 2).transpose(1, 2)
    write = _project(values, out).flatten(1, 2)
    return Absorbed(read.contiguous(), write.contiguous())


def _project(per_head: Tensor, weight: Tensor) -> Tensor:
    """[B, H, E, head_dim] by [H, head_dim, d] -> [B, H, E, d], as one product a head for all notes.

    One for each note and head would be thousands of tiny ones, whose addresses onnxruntime copies to a GPU in
    every run: a captured CUDA graph would read them from memory that may be somebody else's by then.
    """
    n_positions = per_head.shape[2]
    rows = per_head.transpose(0, 1).flatten(1, 2)  # [H, B * E, head_dim]
    return (rows @ weight).unflatten(1, (-1, n_positions)).transpose(0, 1)


def attend_absorbed(x: Tensor, absorbed: Absorbed, n_heads: int) -> Tensor:
    """One position [B, 1, d] per row; returns the change [B, 1, d]."""
    scores = x @ absorbed.read
    n_positions = scores.shape[2] // n_heads
    weights = scores.reshape(-1, n_heads, n_positions).softmax(dim=2)
    return weights.reshape(-1, 1, n_heads * n_positions) @ absorbed.write


def _per_head(attention: CrossAttention, tensor: Tensor) -> Tensor:
    """[B, n_kv_heads, E, head_dim] -> [B, n_heads, E, head_dim]: query heads share keys and values."""
    return tensor.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=1)
