"""The decoder of the decoder-only model: the condition stands before the note's tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor

from timbrel_training.model.attention import KV
from timbrel_training.model.decoder import Decoder
from timbrel_training.model.layers import PrefixLayer


class PrefixDecoder(Decoder):
    """After GPT-2 (Radford et al., 2019).

    One masked self-attention sees both, and each has positions of its own, numbered from 0. Nothing in the
    prefix sees the tokens: its keys and values are made once a note, and caches hold the tokens' alone.
    """

    layer_type = PrefixLayer

    def memories(self, condition: Tensor) -> list[KV]:
        found = []
        for layer in cast("Iterable[PrefixLayer]", self.layers):
            found.append(layer.project_memory(condition))
            condition = layer(condition)
        return found

    def hidden(self, tokens: Tensor, gate: Tensor, condition: Tensor) -> Tensor:
        x = torch.cat([condition, self.embed(tokens, gate)], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x[:, condition.shape[1] :])
