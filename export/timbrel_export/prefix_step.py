"""One step of the decoder-only model: for comparison, so it is the model's own, in no special operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from timbrel_export.cached_attention import standard_attention
from timbrel_export.step_operators import StepOperators
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV, attend_cached


class PrefixStep(nn.Module):
    """The step of a model with `conditioning: prefix`."""

    def __init__(self, model: NoteTransformer, operators: StepOperators) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, gate: Tensor, position: Tensor, caches: Sequence[KV], memories: Sequence[KV]
    ) -> tuple[Tensor, list[KV]]:
        """As `FusedStep.forward`; memories: per layer, keys and values [B, n_kv_heads, 3, head_dim]."""
        attention = standard_attention if torch.compiler.is_exporting() else attend_cached
        return self.model.step(tokens, gate, position, caches, memories, attention)
