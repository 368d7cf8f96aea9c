"""One step of the decoder, in as few operators as there are kernels for.

`FusedStep` computes what `timbrel_training.model.decoder.Decoder.step` does, but queries, keys and values
stay one tensor, cross-attention is absorbed, and a residual connection meets the LayerNorm behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from timbrel_export.absorbed_attention import Absorbed, attend_absorbed, cross_layers
from timbrel_export.step_operators import StandardOperators
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV
from timbrel_training.model.decoder import row_at
from timbrel_training.model.embeddings import MASKED_LOGIT
from timbrel_training.model.layers import CrossLayer


class FusedStep(nn.Module):
    """The step of a model. It shares the model's weights, under their names."""

    def __init__(self, model: NoteTransformer, operators: StandardOperators) -> None:
        super().__init__()
        self.model = model
        self.operators = operators
        self._layers = cross_layers(model)
        self._norms = self._norms_behind()

    def forward(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: Tensor,
        caches: Sequence[KV],
        absorbed: Sequence[Absorbed],
        header: Tensor | None = None,
    ) -> tuple[Tensor, list[KV]]:
        """Logits float32 [B, K, V] and the new caches, of tokens int64 [B, K], gate int64 [B] and position
        int32 [B]: how many positions the row's cache holds already.

        By layer, `caches` are keys and values [B, n_kv_heads, max_positions, head_dim], and `absorbed` is the
        note's condition; `header` [B, lead_frames, d] is what the heads read in lead frames.
        """
        norms = iter(self._norms)
        normed, x = self._enter(tokens, gate, position)
        written: list[KV] = []
        for layer, cache, condition in zip(self._layers, caches, absorbed, strict=True):
            change, cache = self._attend(layer, normed, cache, position)
            normed, x = self._join(x, change, None, next(norms))
            change = attend_absorbed(normed, condition, layer.cross_attention.n_heads)
            normed, x = self._join(x, change, None, next(norms))
            change = self._feed_forward(layer, normed)
            normed, x = self._join(x, change, layer.feed_forward.down.bias, next(norms))
            written.append(cache)
        if header is not None:
            normed = row_at(header, position, normed)
        return self._score(normed, position, gate), written

    def _norms_behind(self) -> list[nn.Module]:
        """The norm behind each block's residual connection: its own, or, in a pre-norm model, the next's."""
        norms: list[nn.Module] = [
            residual.norm
            for layer in self._layers
            for residual in (layer.self_residual, layer.cross_residual, layer.feed_forward_residual)
        ]
        return [*norms[1:], self.model.decoder.norm] if self._normalises_first else norms

    @property
    def _normalises_first(self) -> bool:
        return self.model.config.norm == "pre"

    def _enter(self, tokens: Tensor, gate: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Turns a step's inputs into what the first block reads, and the residual stream."""
        decoder = self.model.decoder
        played = self.operators.embed(tokens, decoder.tokens)
        placed = (decoder.gate(gate) + decoder.positions(position))[:, None]
        if self._normalises_first:
            return self.operators.join(played, placed, None, self._layers[0].self_residual.norm)
        return (played + placed,) * 2

    def _join(self, x: Tensor, change: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """Adds a block's change: gives what the next block reads, and the residual stream behind this one."""
        normed, total = self.operators.join(x, change, bias, norm)
        return normed, total if self._normalises_first else normed

    def _attend(self, layer: CrossLayer, x: Tensor, cache: KV, position: Tensor) -> tuple[Tensor, KV]:
        attention = layer.self_attention
        qkv = self.operators.project(x, attention)
        attended, cache = self.operators.attend(qkv, attention, cache, position)
        return self.operators.linear(attended, attention.out.weight, attention.out), cache

    def _feed_forward(self, layer: CrossLayer, x: Tensor) -> Tensor:
        block = layer.feed_forward
        inner = block.activation(self.operators.linear(x, block.up.weight, block.up) + block.up.bias)
        return self.operators.linear(inner, block.down.weight, block.down)

    def _score(self, x: Tensor, position: Tensor, gate: Tensor) -> Tensor:
        heads, embedding = self.model.decoder.heads, self.model.decoder.tokens
        scores = self.operators.linear(x, embedding.weight, embedding).float()
        biases = heads.bias.float().masked_fill(heads.forbidden, MASKED_LOGIT)  # [3, K, V]
        bias = biases.index_select(0, heads.part(position, self.model.decoder.is_held(gate)))
        return scores.reshape(bias.shape) + bias
