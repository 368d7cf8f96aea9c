"""Products with 8-bit weights, as com.microsoft MatMulNBits.

The bundle holds no second copy of the weights: the graph names, for each, what a runtime is to derive from it
as it loads (`timbrel_bundle.weights`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timbrel_bundle.weights import BLOCK_SIZE, CODES_SUFFIX, N_BITS, SCALES_SUFFIX, block_shape

INT8_ARITHMETIC = 4
"""MatMulNBits' accuracy_level: inputs too are quantised, block by block, so that the products are of int8."""


def add_quantized_weights(module: nn.Module, name: str = "weight") -> None:
    """Puts placeholders of what is derived from it, of the right shapes, beside a weight [n_out, n_in]."""
    shape = block_shape(getattr(module, name).shape)
    module.register_buffer(f"{name}{CODES_SUFFIX}", torch.zeros(shape, dtype=torch.uint8), persistent=False)
    module.register_buffer(f"{name}{SCALES_SUFFIX}", torch.zeros(shape[:2]), persistent=False)


def derived_names(name: str) -> frozenset[str]:
    """What a graph calls the derived weights of the weight of this name."""
    return frozenset({f"{name}{CODES_SUFFIX}", f"{name}{SCALES_SUFFIX}"})


def quantized_linear(x: Tensor, weight: Tensor, layer: nn.Module) -> Tensor:
    """[B, 1, n_in] times the layer's weight [n_out, n_in]; the weight itself outside of an export."""
    if not torch.compiler.is_exporting():
        return nn.functional.linear(x, weight)
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
