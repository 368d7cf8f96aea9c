"""One position per row against its cache, as ONNX operators that write the cache in place.

Both stand in for `timbrel_training.model.attention.attend_cached`, whose arithmetic they share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from timbrel_training.model.attention import KV, attend_cached


def group_query_attention(
    qkv: Tensor, n_heads: int, cache: KV, position: Tensor, scales: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, KV]:
    """com.microsoft GroupQueryAttention: past and present may share one buffer, rows may stand anywhere.

    For exports only. Takes queries, keys and values as one tensor [B, 1, (n_heads + 2 n_kv_heads) head_dim].

    With scales [n_kv_heads * head_dim] of keys and values, by channel, the cache holds int8.

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
    attended, keys, values = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        inputs,
        attrs=attributes,
        dtypes=(qkv.dtype, cache[0].dtype, cache[1].dtype),
        shapes=((*qkv.shape[:2], n_heads * head_dim), cache[0].shape, cache[1].shape),
        version=1,
    )
    return attended, (keys, values)


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
