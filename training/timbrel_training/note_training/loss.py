"""The loss of stage 2: `token_loss` plainly, and `training_loss`, which is quick and weighs headers.

Logits of all codebooks are by far the largest tensors of a training step, and moving them takes a CPU as long
as the rest of the step. `training_loss` takes a few hundred rows at a time through the layer, the softmax and
back, and the gradients are ready when the loss is (after "Cut Your Losses", Wijmans et al., 2024, and Liger
Kernel, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.tokens.delay import IGNORED, TokenBatch

CHUNK_ROWS = 512
"""Rows at a time: their float32 logits (2 MB for 1,024 codes) stay in a core's cache."""


@dataclass(frozen=True)
class TokenLoss:
    """Cross entropy of a batch, by codebook."""

    nats: Tensor  # [K], summed over the codebook's targets
    n_targets: Tensor  # [K]


def token_loss(
    model: NoteTransformer, timbre: Tensor, pitch: Tensor, velocity: Tensor, batch: TokenBatch
) -> TokenLoss:
    """Returns the cross entropy of the batch's targets. Only those are scored: padding costs nothing.

    EOS is scored from the first step on, where `forward` forbids it: that no note ends there is learnt.

    Of B notes, timbre is float32 [B, 2], pitch int64 [B], velocity float32 [B].
    """
    hidden = model.hidden(timbre, pitch, velocity, batch.tokens, batch.gate)
    decoder = model.decoder
    nats, counts = [], []
    for codebook in range(model.config.n_codebooks):
        targets = batch.targets[:, :, codebook]
        asked = targets != IGNORED
        logits = decoder.heads.one_codebook(hidden[asked], decoder.tokens, codebook)
        nats.append(nn.functional.cross_entropy(logits, targets[asked], reduction="sum"))
        counts.append(asked.sum())
    return TokenLoss(torch.stack(nats), torch.stack(counts))


class LinearCrossEntropy(torch.autograd.Function):
    """Cross entropy of `x @ weight.T + bias` against targets, nats summed over N, with its gradients.

    x is [N, d], float32 or bfloat16, and products are taken in its type; weight [V, d], bias [V] are float32,
    targets int64 [N].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
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


def training_loss(
    model: NoteTransformer, timbre: Tensor, pitch: Tensor, velocity: Tensor, batch: TokenBatch
) -> TokenLoss:
    """Returns the cross entropy of the batch's targets, without ever holding all logits in memory.

    That of `token_loss`, but that a codebook's lead frames weigh as much as all frames behind them: a header
    is said once, four frames in a hundred, and a note is silent where it is wrong.
    """
    hidden = model.hidden(timbre, pitch, velocity, batch.tokens, batch.gate)
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    heads, weight = model.decoder.heads, model.decoder.tokens.weight
    layout, lead = model.config.layout, model.config.lead_frames
    nats, counts = [], []
    for codebook in range(model.config.n_codebooks):
        targets = batch.targets[:, :, codebook]
        asked = targets != IGNORED
        layer = heads.layer(weight, codebook)
        end = lead + codebook * layout.codebook_delay
        spans = (slice(end), slice(end, None)) if lead else (slice(None),)
        means = []
        for span in spans:
            here = asked[:, span]
            scored = linear_cross_entropy(hidden[:, span][here], *layer, targets[:, span][here])
            means.append(scored / here.sum().clamp(min=1))
        counts.append(asked.sum())
        nats.append(counts[-1] * torch.stack(means).mean())
    return TokenLoss(torch.stack(nats), torch.stack(counts))


def header_loss(
    model: NoteTransformer, timbre: Tensor, pitch: Tensor, velocity: Tensor, targets: Tensor
) -> Tensor:
    """Returns nats per token of lead frames, int64 [B, lead_frames, K], that the header network says."""
    rows = model.header_rows(timbre, pitch, velocity)
    assert rows is not None
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    heads, weight = model.decoder.heads, model.decoder.tokens.weight
    nats = [
        linear_cross_entropy(rows.flatten(0, 1), *heads.layer(weight, q), targets[:, :, q].flatten())
        for q in range(model.config.n_codebooks)
    ]
    return torch.stack(nats).sum() / targets.numel()
