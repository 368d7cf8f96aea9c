"""What the decode step is made of: the same arithmetic in onnxruntime's own operators or in the standard's.

Outside of an export all of them are plain PyTorch.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from timbrel_export.cached_attention import (
    NO_SINK,
    group_query_attention,
    scale_queries,
    standard_attention,
)
from timbrel_export.early_draw import sample_early
from timbrel_export.quantized_linear import quantized_linear
from timbrel_training.model.attention import KV, SelfAttention, attend_cached
from timbrel_training.model.sampling import sample


class StepOperators(Protocol):
    """The operators that the graphs differ in."""

    def project(self, x: Tensor, attention: SelfAttention) -> Tensor:
        """Queries, keys and values of x [B, 1, d], as `attend` takes them."""

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        """Queries, keys and values [B, 1, (n_heads + 2 n_kv_heads) * head_dim] against the cache.

        Returns what was attended to, [B, 1, n_heads * head_dim], and the cache with keys and values written.
        """

    def join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """norm(x + change + bias), and the sum itself: [B, 1, d] each."""

    def linear(self, x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
        """[..., n_in] times the layer's weight [n_out, n_in], without a bias."""

    def sample(
        self, logits: Tensor, uniforms: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
    ) -> Tensor:
        """The next tokens [B, K], as `timbrel_training.model.sampling.sample` draws them."""


class StandardOperators:
    """The ONNX standard's, opset 24."""

    def project(self, x: Tensor, attention: SelfAttention) -> Tensor:
        qkv = self.linear(x, attention.qkv.weight, attention.qkv)
        return qkv if attention.qkv.bias is None else qkv + attention.qkv.bias

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        query, key, value = qkv.split(attention.sizes, dim=2)
        return standard_attention(query, key, value, cache, position)

    def join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        total = x + (change if bias is None else change + bias)
        return norm(total), total

    def linear(self, x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
        return nn.functional.linear(x, weight)

    def sample(
        self, logits: Tensor, uniforms: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
    ) -> Tensor:
        return sample(logits, uniforms, temperature, top_k, top_p)


class EarlyDraw:
    """A draw that seldom sorts: for the CPU. CUDA graphs know no branches."""

    def sample(
        self, logits: Tensor, uniforms: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
    ) -> Tensor:
        return sample_early(logits, uniforms, temperature, top_k, top_p)


class RuntimeOperators(StandardOperators):
    """onnxruntime's wherever it runs: com.microsoft GroupQueryAttention."""

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        if not torch.compiler.is_exporting():
            query, key, value = qkv.split(attention.sizes, dim=2)
            return attend_cached(query, key, value, cache, position)
        return group_query_attention(qkv, attention.n_heads, cache, position)


class CpuOperators(EarlyDraw, RuntimeOperators):
    """onnxruntime's for the CPU, in fp32.

    Of its kernels for one position of a row, those chosen here take 0.6 to 0.8 times as long on x86-64
    (onnxruntime 1.31, one thread; elsewhere not measured). Its matrix product of one row reads keys where
    they lie if nothing else is to be multiplied, and copies them otherwise: so the queries' weights bear the
    scale. And its tiled kernel, which is compiled for the baseline instruction set, stands back where heads
    have sinks: so each has one without any weight.

    SkipLayerNormalization is not used: on the CPU it takes twice as long as Add and LayerNormalization.
    """

    def project(self, x: Tensor, attention: SelfAttention) -> Tensor:
        if not torch.compiler.is_exporting():
            return super().project(x, attention)
        layer = attention.qkv
        qkv = self.linear(x, scale_queries(layer.weight, attention), layer)
        return qkv if layer.bias is None else qkv + scale_queries(layer.bias, attention)

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        if not torch.compiler.is_exporting():
            return super().attend(qkv, attention, cache, position)
        sink = qkv.new_full((attention.n_heads,), NO_SINK)
        return group_query_attention(qkv, attention.n_heads, cache, position, scale=1.0, sink=sink)


class Int8Operators(EarlyDraw, RuntimeOperators):
    """The same with weights and cache of 8 bits: com.microsoft MatMulNBits (see `quantized_linear`).

    The attention modules bear their cache's scales (see `cache_scales`).
    """

    def attend(self, qkv: Tensor, attention: SelfAttention, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        if not torch.compiler.is_exporting():
            return super().attend(qkv, attention, cache, position)
        scales = (attention.get_buffer("key_scales"), attention.get_buffer("value_scales"))
        return group_query_attention(qkv, attention.n_heads, cache, position, cache_scales=scales)

    def linear(self, x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
        return quantized_linear(x, weight, layer)


class CudaOperators(RuntimeOperators):
    """onnxruntime's for CUDA: SkipLayerNormalization too, since there every node is a launch."""

    def join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_exporting() or not isinstance(norm, nn.LayerNorm):
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
