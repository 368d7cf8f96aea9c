"""The operators of the decode step: the same arithmetic in onnxruntime's own or in the ONNX standard's.

Outside of an export the standard's are plain PyTorch, and the others do not run. Both attentions write the
cache in place; their arithmetic is that of `timbrel_training.model.attention.attend_cached`. Of 8-bit weights
the bundle holds no second copy: the graph names, for each, what a runtime is to derive from it as it loads
(`timbrel_bundle.weights`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_bundle.weights import BLOCK_SIZE, CODES_SUFFIX, N_BITS, SCALES_SUFFIX, block_shape
from timbrel_export.early_draw import sample_early
from timbrel_training.model.attention import KV, SelfAttention, attend_cached
from timbrel_training.model.embeddings import TokenEmbedding
from timbrel_training.model.sampling import sample

ATTENTION_INPUTS = (
    *("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"),
    *("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale"),
)
"""The inputs of GroupQueryAttention, in their order."""

NO_SINK = -1e30
"""A logit that takes no share of any softmax: its exponential is 0."""

INT8_ARITHMETIC = 4
"""MatMulNBits' accuracy_level: inputs too are quantised, block by block, so that the products are of int8."""


class StandardOperators:
    """The operators that the graphs differ in, here the ONNX standard's, opset 24."""

    def embed(self, tokens: Tensor, embedding: TokenEmbedding) -> Tensor:
        """The sum of the embeddings of tokens [B, K]: [B, 1, d]."""
        return embedding(tokens)[:, None]

    def project(self, x: Tensor, attention: SelfAttention) -> Tensor:
        """Queries, keys and values of x [B, 1, d], as `attend` takes them."""
        return self.linear(x, attention.qkv.weight, attention.qkv)

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        """Queries, keys and values [B, 1, (n_heads + 2 n_kv_heads) * head_dim] against the cache.

        Returns what was attended to, [B, 1, n_heads * head_dim], and the cache with keys and values written.
        """
        query, key, value = qkv.split(attention.sizes, dim=2)
        return standard_attention(query, key, value, cache, position)

    def join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """norm(x + change + bias), and the sum itself: [B, 1, d] each."""
        total = x + (change if bias is None else change + bias)
        return norm(total), total

    def linear(self, x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
        """[..., n_in] times the layer's weight [n_out, n_in], without a bias."""
        return nn.functional.linear(x, weight)

    sample: Callable[..., Tensor] = staticmethod(sample)
    """The next tokens [B, K]; on the CPU by a draw that seldom sorts. CUDA graphs know no branches."""


class CpuOperators(StandardOperators):
    """onnxruntime's for the CPU, in fp32: com.microsoft GroupQueryAttention.

    Of its kernels for one position of a row, those chosen here take 0.6 to 0.8 times as long on x86-64
    (onnxruntime 1.31, one thread; elsewhere not measured). Its matrix product of one row reads keys where
    they lie if nothing else is to be multiplied, and copies them otherwise: so the queries' weights bear the
    scale. And its tiled kernel, which is compiled for the baseline instruction set, stands back where heads
    have sinks: so each has one without any weight.

    SkipLayerNormalization is not used: on the CPU it takes twice as long as Add and LayerNormalization.
    """

    sample = staticmethod(sample_early)

    def project(self, x: Tensor, attention: SelfAttention) -> Tensor:
        layer = attention.qkv
        return self.linear(x, scale_queries(layer.weight, attention), layer)

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        sink = qkv.new_full((attention.n_heads,), NO_SINK)
        return group_query_attention(qkv, attention.n_heads, cache, position, scale=1.0, sink=sink)


class Int8Operators(StandardOperators):
    """The same with weights and cache of 8 bits: com.microsoft MatMulNBits.

    The attention modules bear their cache's scales (see `sample_note`).
    """

    sample = staticmethod(sample_early)

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        scales = (attention.get_buffer("key_scales"), attention.get_buffer("value_scales"))
        return group_query_attention(qkv, attention.n_heads, cache, position, cache_scales=scales)

    def linear(self, x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
        n_out, n_in = weight.shape
        return torch.onnx.ops.symbolic(
            "com.microsoft::MatMulNBits",
            (x, getattr(layer, f"weight{CODES_SUFFIX}"), getattr(layer, f"weight{SCALES_SUFFIX}")),
            attrs={
                "K": n_in,
                "N": n_out,
                "bits": N_BITS,
                "block_size": BLOCK_SIZE,
                "accuracy_level": INT8_ARITHMETIC,
            },
            dtype=x.dtype,
            shape=(*x.shape[:-1], n_out),
            version=1,
        )


class CudaOperators(StandardOperators):
    """onnxruntime's for CUDA: SkipLayerNormalization too, since there every node is a launch.

    Embeddings are summed by a product: a sum of fp16 is a cast, a launch of 65,535 blocks, and a cast back.
    """

    def embed(self, tokens: Tensor, embedding: TokenEmbedding) -> Tensor:
        rows = nn.functional.embedding(tokens + embedding.offsets, embedding.weight)
        return rows.flatten(1)[:, None] @ embedding.get_buffer("summing")

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        return group_query_attention(qkv, attention.n_heads, cache, position)

    def join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        if not isinstance(norm, nn.LayerNorm):
            return super().join(x, change, bias, norm)
        statistics = (*x.shape[:-1], 1)
        normed, _, _, total = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::SkipLayerNormalization",
            (x, change, norm.weight, norm.bias, *(() if bias is None else (bias,))),
            attrs={"epsilon": norm.eps},
            dtypes=(x.dtype, torch.float32, torch.float32, x.dtype),
            shapes=(x.shape, statistics, statistics, x.shape),
            version=1,
        )
        return normed, total


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

    `total_sequence_length` is the cache's whole length at every step; the value 1 would
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
    n_inputs = max(ATTENTION_INPUTS.index(name) for name in given) + 1
    attended, keys, values = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        tuple(given.get(name) for name in ATTENTION_INPUTS[:n_inputs]),
        attrs=attributes,
        dtypes=(qkv.dtype, cache[0].dtype, cache[1].dtype),
        shapes=((*qkv.shape[:2], n_heads * head_dim), cache[0].shape, cache[1].shape),
        version=1,
    )
    return attended, (keys, values)


def scale_queries(weight: Tensor, attention: SelfAttention) -> Tensor:
    """The projection to queries, keys and values, its queries divided by sqrt(head_dim).

    Its weight is [(n_heads + 2 n_kv_heads) head_dim, d]. A runtime multiplies it once, as it loads the graph.
    """
    factor = weight.new_ones(sum(attention.sizes))
    factor[: attention.sizes[0]] = 1.0 / math.sqrt(attention.head_dim)
    return weight * factor.view(-1, 1)


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


def add_summing(embedding: TokenEmbedding) -> None:
    """Registers the matrix [K * d, d] by which `CudaOperators` sum and scale the K embeddings of a row.

    As a product with [1, K] onnxruntime would upload a table of every row's address at each step.
    """
    identity = torch.eye(embedding.weight.shape[1], dtype=embedding.weight.dtype) * embedding.scale
    embedding.register_buffer("summing", identity.repeat(len(embedding.offsets), 1), persistent=False)


def add_quantized_weights(module: nn.Module, name: str = "weight") -> None:
    """Registers placeholders, of the right shapes, of what is derived from a weight [n_out, n_in]."""
    shape = block_shape(getattr(module, name).shape)
    module.register_buffer(f"{name}{CODES_SUFFIX}", torch.zeros(shape, dtype=torch.uint8), persistent=False)
    module.register_buffer(f"{name}{SCALES_SUFFIX}", torch.zeros(shape[:2]), persistent=False)


def derived_names(name: str) -> frozenset[str]:
    """Names in a graph of the weights that are derived from the weight of this name."""
    return frozenset({f"{name}{CODES_SUFFIX}", f"{name}{SCALES_SUFFIX}"})
