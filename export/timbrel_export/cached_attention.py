"""One position per row against its cache, as ONNX operators that write the cache in place.

Both stand in for `timbrel_training.model.attention.attend_cached`, whose arithmetic they share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from timbrel_training.model.attention import KV, SelfAttention, attend_cached

NO_SINK = -1e30
"""A logit that takes no share of any softmax: its exponential is 0."""


def group_query_attention(
    qkv: Tensor,
    n_heads: int,
    cache: KV,
    position: Tensor,
    scales: tuple[Tensor, Tensor] | None = None,
    *,
    queries_are_scaled: bool = False,
) -> tuple[Tensor, KV]:
    """com.microsoft GroupQueryAttention: past and present may share one buffer, rows may stand anywhere.

    For exports only. Takes queries, keys and values as one tensor [B, 1, (n_heads + 2 n_kv_heads) head_dim].

    With scales [n_kv_heads * head_dim] of keys and values, by channel, the cache holds int8.

    Where the queries are divided by sqrt(head_dim) already (`scale_queries`), onnxruntime's fastest kernels
    for fp32 on the CPU are chosen (0.6 to 0.8 times as long): its matrix product of one row with a factor of
    1 reads keys where they lie, with any other factor it copies them first; and its tiled kernel for one
    position, which is compiled for any processor, does not know sinks, so that each head is given one without
    any weight.

    `total_sequence_length` is the cache's whole length at every step; the value 1 would mean a prompt, which
    overwrites position 0. The kernel needs a head_dim that is a multiple of 8.
    """
    n_kv_heads, n_positions, head_dim = cache[0].shape[1:]
    length = torch.tensor(n_positions, dtype=torch.int32)
    inputs: tuple[Tensor | None, ...] = (qkv, None, None, *cache, position, length)
    attributes: dict[str, Any] = {"num_heads": n_heads, "kv_num_heads": n_kv_heads, "do_rotary": 0}
    if scales is not None:
        inputs = (*inputs, *[None] * 5, *scales)
        attributes |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    if queries_are_scaled:
        inputs = (*inputs, *[None] * 4, torch.full((n_heads,), NO_SINK))
        attributes["scale"] = 1.0
    attended, keys, values = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        inputs,
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
    factor = torch.ones(sum(attention.sizes))
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
