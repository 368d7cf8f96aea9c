"""Multi-head attention, whole sequences at once (training) or one position against a cache (decoding)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from timbrel_training.model.config import ModelConfig

KV = tuple[Tensor, Tensor]
"""Keys and values, each [B, n_kv_heads, positions, head_dim]."""

CachedAttention = Callable[[Tensor, Tensor, Tensor, KV, Tensor], tuple[Tensor, KV]]
"""Lets one position per row attend to its cache.

It takes query [B, 1, n_heads * head_dim], key and value [B, 1, n_kv_heads * head_dim], the cache, and the
position int32 [B] where key and value belong; gives what was attended to, [B, 1, n_heads * head_dim], and the
cache with key and value written.
"""


class SelfAttention(nn.Module):
    """Attention of a sequence to itself, causal or not; one projection gives queries, keys and values."""

    def __init__(self, config: ModelConfig, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads
        self.head_dim = config.width_per_head
        self.sizes = [n * self.head_dim for n in (self.n_heads, self.n_kv_heads, self.n_kv_heads)]
        self.qkv = nn.Linear(config.d_model, sum(self.sizes), bias=False)
        self.out = nn.Linear(self.sizes[0], config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, S, d] to [B, S, d]."""
        query, key, value = self.qkv(x).split(self.sizes, dim=2)
        attended = attend(
            split_heads(query, self.n_heads),
            split_heads(key, self.n_kv_heads),
            split_heads(value, self.n_kv_heads),
            causal=self.causal,
        )
        return self.out(merge_heads(attended))

    def step(self, x: Tensor, cache: KV, position: Tensor, attention: CachedAttention) -> tuple[Tensor, KV]:
        """Attends from one position [B, 1, d] per row; its cache holds `position` int32 [B] already."""
        query, key, value = self.qkv(x).split(self.sizes, dim=2)
        attended, cache = attention(query, key, value, cache, position)
        return self.out(attended), cache


class CrossAttention(nn.Module):
    """Attention of the decoder's sequence to the encoder's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads
        head_dim = config.width_per_head
        self.query = nn.Linear(config.d_model, self.n_heads * head_dim, bias=False)
        self.key_value = nn.Linear(config.d_model, 2 * self.n_kv_heads * head_dim, bias=False)
        self.out = nn.Linear(self.n_heads * head_dim, config.d_model, bias=False)

    def forward(self, x: Tensor, memory: KV) -> Tensor:
        """Maps [B, S, d] to [B, S, d], given keys and values of the encoder's positions."""
        query = split_heads(self.query(x), self.n_heads)
        return self.out(merge_heads(attend(query, *memory, causal=False)))

    def step(self, x: Tensor, memory: KV) -> Tensor:
        """Does the same for one position [B, 1, d], in the plainest operators."""
        return self.out(attend_one(self.query(x), *memory))

    def project_memory(self, memory: Tensor) -> KV:
        """Returns keys and values [B, n_kv_heads, E, head_dim] of the encoder's output [B, E, d]."""
        key, value = self.key_value(memory).chunk(2, dim=2)
        return split_heads(key, self.n_kv_heads), split_heads(value, self.n_kv_heads)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Turns [B, S, n_heads * head_dim] into [B, n_heads, S, head_dim]."""
    return x.unflatten(2, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Turns [B, n_heads, S, head_dim] into [B, S, n_heads * head_dim]."""
    return x.transpose(1, 2).flatten(2)


def attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> Tensor:
    """Returns softmax(Q K^T / sqrt(head_dim)) V: [B, n_heads, S, head_dim], of a query of that shape and key
    and value [B, n_kv_heads, E, head_dim]. `causal`: position s sees positions 0 .. s only."""
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    if query.requires_grad and query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _attend_explicitly(query, key, value, causal=causal)
    return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)


def _attend_explicitly(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> Tensor:
    """Takes plain products: the fused kernel's backward is several times slower in bfloat16 on the CPU."""
    n_queries, n_keys = query.shape[2], key.shape[2]
    mask = query.new_zeros(n_queries, n_keys)
    if causal:
        mask = torch.full_like(mask, -torch.inf).triu(1)
    flat_query, flat_key, flat_value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
    scale = 1.0 / math.sqrt(query.shape[3])
    mask = mask.expand(flat_query.shape[0], n_queries, n_keys)
    scores = torch.baddbmm(mask, flat_query, flat_key.transpose(1, 2), alpha=scale)
    return torch.bmm(scores.softmax(dim=2), flat_value).view_as(query)


def attend_one(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
    """Returns `attend` for one position per row, [B, 1, n_heads * head_dim], of a query of that shape and key
    and value [B, n_kv_heads, E, head_dim]. A row sees the positions that are `visible`, bool [B, E]; None:
    all."""
    grouped = query.unflatten(2, (key.shape[1], -1, key.shape[3]))[:, 0]  # [B, n_kv_heads, group, head_dim]
    scores = grouped @ key.transpose(2, 3) / math.sqrt(key.shape[3])
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None, None, :], -torch.inf)
    return (scores.softmax(dim=3) @ value).flatten(1)[:, None]


def attend_cached(
    query: Tensor, key: Tensor, value: Tensor, cache: KV, position: Tensor
) -> tuple[Tensor, KV]:
    """Is the `CachedAttention` of plain PyTorch. It returns a new cache and leaves the one given alone."""
    n_kv_heads, n_positions = cache[0].shape[1:3]
    index = torch.arange(n_positions, device=query.device)
    here = (index == position[:, None])[:, None, :, None]  # [B, 1, P, 1]
    keys = torch.where(here, split_heads(key, n_kv_heads), cache[0])
    values = torch.where(here, split_heads(value, n_kv_heads), cache[1])
    return attend_one(query, keys, values, index <= position[:, None]), (keys, values)
