"""Cross entropy of a linear layer's outputs, computed without ever holding them all.

Logits of all codebooks are by far the largest tensors of a training step, and moving them takes a CPU as long
as the rest of the step. Here a few hundred rows at a time go through the layer, the softmax and back, and the
gradients are ready when the loss is (after "Cut Your Losses", Wijmans et al., 2024, and Liger Kernel, 2024).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 512
"""Rows at a time: their float32 logits (2 MB for 1,024 codes) stay in a core's cache."""


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross entropy of `x @ weight.T + bias` against targets, with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        """
        Args:
            x: [N, d], float32 or bfloat16; products are taken in its type.
            weight: float32 [V, d].
            bias: float32 [V].
            targets: int64 [N].

        Returns:
            float32 scalar, nats summed over N.
        """
        cast_weight = weight.to(x.dtype)
        grad_x = torch.empty_like(x)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        nats = x.new_zeros((), dtype=torch.float32)
        n_rows = CHUNK_ROWS if x.device.type == "cpu" else 16 * CHUNK_ROWS
        for first in range(0, len(x), n_rows):
            rows = x[first : first + n_rows]
            wanted = targets[first : first + n_rows, None]
            logits = (rows @ cast_weight.T).float().add_(bias)
            log_normaliser = torch.logsumexp(logits, dim=1, keepdim=True)
            nats += (log_normaliser - logits.gather(1, wanted)).sum()
            gradient = logits.sub_(log_normaliser).exp_()
            gradient.scatter_add_(1, wanted, gradient.new_full(wanted.shape, -1.0))
            grad_bias += gradient.sum(dim=0)
            gradient = gradient.to(x.dtype)
            grad_x[first : first + n_rows] = gradient @ cast_weight
            grad_weight += gradient.T @ rows
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        return nats

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_weight, grad_bias = ctx.saved_tensors
        scale = gradients[0]
        return grad_x * scale.to(grad_x.dtype), grad_weight * scale, grad_bias * scale, None


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """See LinearCrossEntropy; to be called outside autocast or with `x` already in its final type."""
    with torch.autocast(x.device.type, enabled=False):
        result: Tensor = LinearCrossEntropy.apply(x, weight, bias, targets)
    return result
