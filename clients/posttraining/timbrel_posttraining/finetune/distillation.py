"""How far a model has moved from the one it started as, on the same notes at the same points.

Hard tokens say which note was written, the old model's probabilities say which others might have been: a few
hundred notes then hold a whole model in place ("Learning without forgetting", Li & Hoiem, 2016).
"""

from __future__ import annotations

import torch
from torch import Tensor

from timbrel_training.model.embeddings import MASKED_LOGIT
from timbrel_training.model.transformer import NoteTransformer
from timbrel_training.note_training.train import NoteBatch
from timbrel_training.tokens.delay import IGNORED


def divergence(model: NoteTransformer, old: NoteTransformer, batch: NoteBatch) -> Tensor:
    """KL divergence of the model's next tokens from the old one's: nats per token, each codebook alike.

    Args:
        model: is trained.
        old: stays as it is; of the same shape.
        batch: notes, on the models' device.
    """
    with torch.no_grad():
        wanted = _hidden(old, batch)
    found = _hidden(model, batch)
    parts = []
    for codebook in range(model.config.n_codebooks):
        asked = batch.tokens.targets[:, :, codebook] != IGNORED
        with torch.no_grad():
            target = _log_probabilities(old, wanted[asked], codebook)
        moved = _log_probabilities(model, found[asked], codebook)
        parts.append((target.exp() * (target - moved)).sum(dim=1).mean())
    return torch.stack(parts).mean()


def _hidden(model: NoteTransformer, batch: NoteBatch) -> Tensor:
    """[B, S, d] of a batch."""
    tokens = batch.tokens
    return model.hidden(batch.timbre, batch.pitch, batch.velocity, tokens.tokens, tokens.gate)


def _log_probabilities(model: NoteTransformer, hidden: Tensor, codebook: int) -> Tensor:
    """float32 [N, V] of one codebook's tokens after hidden states [N, d]."""
    heads, size = model.decoder.heads, model.config.layout.vocabulary_size
    weight = model.decoder.tokens.weight[codebook * size : (codebook + 1) * size]
    bias = heads.bias[codebook].masked_fill(heads.forbidden[codebook], MASKED_LOGIT)
    return (torch.nn.functional.linear(hidden, weight).float() + bias).log_softmax(dim=1)
