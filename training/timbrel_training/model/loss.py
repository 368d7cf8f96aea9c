"""How well the model predicts given notes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.tokens.delay import IGNORED, Batch


@dataclass(frozen=True)
class TokenLoss:
    """Cross entropy of a batch, by codebook."""

    nats: Tensor  # [K], summed over the codebook's targets
    n_targets: Tensor  # [K]

    @property
    def mean(self) -> Tensor:
        """Nats per token, all codebooks together: what training minimises."""
        return self.nats.sum() / self.n_targets.sum().clamp(min=1)


def token_loss(
    model: NoteTransformer,
    timbre: Tensor,
    pitch: Tensor,
    velocity: Tensor,
    batch: Batch,
) -> TokenLoss:
    """Cross entropy of the batch's targets. Only those are scored: padding costs nothing in the output heads.

    Args:
        model: scores the tokens.
        timbre: float32 [B, 2].
        pitch: int64 [B].
        velocity: float32 [B].
        batch: B notes.
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
