"""The training loss of stage 2: as `model.loss.token_loss`, but quick."""

from __future__ import annotations

import torch
from torch import Tensor

from timbrel_training.model.loss import TokenLoss
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.model.vocabulary import MASKED_LOGIT
from timbrel_training.note_training.cross_entropy import linear_cross_entropy
from timbrel_training.tokens.delay import IGNORED, Batch


def training_loss(
    model: NoteTransformer, timbre: Tensor, pitch: Tensor, velocity: Tensor, batch: Batch
) -> TokenLoss:
    """What `token_loss` gives for the same arguments, without ever holding all logits in memory.

    Args:
        model: scores the tokens.
        timbre: float32 [B, 2].
        pitch: int64 [B].
        velocity: float32 [B].
        batch: B notes.
    """
    hidden = model.hidden(timbre, pitch, velocity, batch.tokens, batch.gate)
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    heads, weight = model.decoder.heads, model.decoder.tokens.weight
    size = model.config.layout.vocabulary_size
    biases = heads.bias.masked_fill(heads.forbidden, MASKED_LOGIT)
    nats, counts = [], []
    for codebook in range(model.config.n_codebooks):
        targets = batch.targets[:, :, codebook]
        asked = targets != IGNORED
        rows = weight[codebook * size : (codebook + 1) * size]
        nats.append(linear_cross_entropy(hidden[asked], rows, biases[codebook], targets[asked]))
        counts.append(asked.sum())
    return TokenLoss(torch.stack(nats), torch.stack(counts))
