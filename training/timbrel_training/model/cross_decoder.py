"""The decoder of the encoder-decoder model: every layer looks at the condition through cross-attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor

from timbrel_training.model.attention import KV
from timbrel_training.model.decoder import Decoder
from timbrel_training.model.layers import CrossLayer


class CrossDecoder(Decoder):
    """After Vaswani et al. (2017)."""

    layer_type = CrossLayer

    def memories(self, condition: Tensor) -> list[KV]:
        layers = cast("Iterable[CrossLayer]", self.layers)
        return [layer.cross_attention.project_memory(condition) for layer in layers]

    def hidden(self, tokens: Tensor, gate: Tensor, condition: Tensor) -> Tensor:
        x = self.embed(tokens, gate)
        for layer, memory in zip(self.layers, self.memories(condition), strict=True):
            x = layer(x, memory)
        return self.norm(x)
