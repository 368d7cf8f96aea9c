"""One position per row against its cache, as ONNX operators that write the cache in place.

Both stand in for `timbrel_training.model.attention.attend_cached`, whose arithmetic they share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from timbrel_training.model.attention import KV, SelfAttention, attend_cached

INPUTS = (
    *("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"),
    *("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale"),
)
"""GroupQueryAttention's, in their order."""

NO_SINK = -1e30
"""A logit that takes no share of any softmax: its exponential is 0."""


def group_query_attention(
    qkv: Tensor,
    n_heads: int,
    cache: KV,
    position: Tensor,
    *,
    scale: float | None = None,
    sink: Tensor | None = None,
    cache_scales: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, KV]:
    """com.microsoft GroupQueryAttention: past and present may share one buffer, rows may stand anywhere.

    For exports only. `total_sequence_length` is the cache's whole length at every step; the value 1 would
    mean a prompt, which overwrites position 0. The kernel needs a head_dim that is a multiple of 8.

    Args:
        qkv: queries, keys and values as one tensor [B, 1, (n_heads + 2 n_kv_heads) head_dim].
        n_heads: of the queries.
        cache: keys and values; int8 with `cache_scales`.
        position: int32 [B], where the new keys and values belong.
        scale: what scores are multiplied by; None: 1 / sqrt(head_dim).
        sink: [n_heads], one logit more in the softmax of each head, of a value that is 0.
        cache_scales: [n_kv_heads * head_dim] of keys and of values, by channel.

    Returns:
        what was attended to, [B, 1, n_heads * head_dim], and the cache.
    """
    n_kv_heads, n_positions, head_dim = cache[0].shape[1:]
    given: dict[str, Tensor] = {
        "query": qkv,
        "past_key": cache[0],
        "past_value": cache[1],
        "seqlens_k": position,
        "total_sequence_length": torch.tensor(n_positions, dtype=torch.int32),
    }
    attributes: dict[str, Any] = {"num_heads": n_heads, "kv_num_heads": n_kv_heads, "do_rotary": 0}
    if scale is not None:
        attributes["scale"] = scale
    if sink is not None:
        given["head_sink"] = sink
    if cache_scales is not None:
        given["k_scale"], given["v_scale"] = cache_scales
        attributes |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    n_inputs = max(INPUTS.index(name) for name in given) + 1
    attended, keys, values = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        tuple(given.get(name) for name in INPUTS[:n_inputs]),
        attrs=attributes,
        dtypes=(qkv.dtype, cache[0].dtype, cache[1].dtype),
        shapes=((*qkv.shape[:2], n_heads * head_dim), cache[0].shape, cache[1].shape),
        version=1,
    )
    return attended, (keys, values)


def scale_queries(weight: Tensor, attention: SelfAttention) -> Tensor:
    """The projection to queries, keys and values, its queries divided by sqrt(head_dim).

    Args:
        weight: [(n_heads + 2 n_kv_heads) head_dim, ...], the projection's weight or bias. A runtime
            multiplies it once, as it loads the graph.
        attention: whose projection it is.
    """
    factor = weight.new_ones(sum(attention.sizes))
    factor[: attention.sizes[0]] = 1.0 / math.sqrt(attention.head_dim)
    return weight * factor.view(-1, *[1] * (weight.dim() - 1))


def standard_attention(
    query: Tensor, key: Tensor, value: Tensor, cache: KV, position: Tensor
) -> tuple[Tensor, KV]:
    """TensorScatter and Attention of the ONNX standard, opset 24: the portable reference."""
    if not torch.compiler.is_exporting():
        return attend_cached(query, key, value, cache, position)
    n_kv_heads, n_positions, head_dim = cache[0].shape[1:]
    start = position.long()
    keys, values = (
        torch.onnx.ops.symbolic(
            "TensorScatter",
            (past, new.unflatten(2, (n_kv_heads, head_dim)).transpose(1, 2), start),
            attrs={"axis": 2, "mode": "linear"},
            dtype=past.dtype,
            shape=past.shape,
        )
        for past, new in zip(cache, (key, value), strict=True)
    )
    visible = torch.arange(n_positions) <= position[:, None]
    grouped = query.unflatten(2, (-1, head_dim)).transpose(1, 2)  # [B, n_heads, 1, head_dim]
    attended = torch.onnx.ops.symbolic(
        "Attention",
        (grouped, keys, values, visible[:, None, None, :]),
        attrs={"scale": 1.0 / math.sqrt(head_dim)},
        dtype=query.dtype,
        shape=grouped.shape,
    )
    return attended.transpose(1, 2).flatten(2), (keys, values)
