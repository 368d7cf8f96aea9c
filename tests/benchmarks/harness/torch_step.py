"""The step in PyTorch, with a static cache of which only the live part is read."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch._dynamo
from torch import Tensor, nn

from timbrel_export.early_draw import FirstLook, look_again, look_early
from timbrel_training.model import NoteTransformer
from timbrel_training.model.attention import KV, attend_one, merge_heads, split_heads
from timbrel_training.model.sampling import Sampling


class TorchStep:
    """One step of `n_rows` notes that all stand at one position.

    The same weights, the same fused projections, the same draw as our own step. That all rows stand at one
    position is a favour to it: it needs no mask, and reads not one position too many.
    """

    def __init__(
        self,
        model: NoteTransformer,
        caches: list[KV],
        *,
        compiled: bool = False,
        fused: bool = False,
    ) -> None:
        """
        Args:
            caches: of `model.empty_caches`, one row per note. Several steps may share them.
            compiled: by torch.compile in its default mode, anew for every shape.
            fused: attention by `scaled_dot_product_attention`, else by plain products, which need no copy of
                the keys and values for grouped heads.
        """
        self._caches = caches
        self._n_rows = n_rows = len(caches[0][0])
        self._attend = _attend_fused if fused else _attend_plainly
        self._module = _Step(model, self._attend)
        self._run: Any = torch.compile(self._module, dynamic=False) if compiled else self._module
        self._sampling = Sampling(top_p=0.95).rows(n_rows)
        self._memories: list[KV] = []
        self._header: Tensor | None = None
        self._model = model

    @torch.inference_mode()
    def admit(self, timbre: tuple[float, float], pitch: int, velocity: float) -> None:
        """Gives every row the same note to write."""
        n = self._n_rows
        asked = (
            torch.tensor([timbre]).expand(n, 2),
            torch.full((n,), pitch),
            torch.full((n,), float(velocity)),
        )
        self._memories = self._model.decoder.memories(self._model.condition(*asked))
        self._header = self._model.header_rows(*asked)

    @torch.inference_mode()
    def step(
        self, tokens: npt.NDArray[np.int64], held: bool, position: int, uniforms: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int64]:
        """Tokens [B, K] drawn at this position, from tokens [B, K] and uniforms [B, K]."""
        first: FirstLook = self._run(
            torch.from_numpy(tokens),
            torch.full((self._n_rows,), int(held) * self._model.config.release_frames),
            position,
            self._caches,
            self._memories,
            self._header,
            torch.from_numpy(uniforms),
            *self._sampling,
        )
        drawn = first.tokens if bool(first.settled.all()) else look_again(*first)
        return drawn[:, :, 0].numpy()


def allow_recompiling(n_shapes: int) -> None:
    """torch.compile gives up after eight shapes; here each is to be compiled."""
    torch._dynamo.config.recompile_limit = max(n_shapes, 8)
    torch._dynamo.config.accumulated_recompile_limit = 8 * max(n_shapes, 8)


def compiler_missing() -> str | None:
    """Tells why torch.compile cannot be used here; None where it can."""
    if any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return None
    return "torch.compile is left out: it needs a C++ compiler, and there is none (apt-get install g++)"


class _Step(nn.Module):
    def __init__(self, model: NoteTransformer, attend: Any) -> None:
        super().__init__()
        self.model = model
        self.attend = attend

    def forward(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: int,
        caches: list[KV],
        memories: list[KV],
        header: Tensor | None,
        uniforms: Tensor,
        *sampling: Tensor,
    ) -> FirstLook:
        def attention(query: Tensor, key: Tensor, value: Tensor, cache: KV, _: Tensor) -> tuple[Tensor, KV]:
            for past, new in zip(cache, (key, value), strict=True):
                past[:, :, position : position + 1] = split_heads(new, past.shape[1])
            keys, values = (past[:, :, : position + 1] for past in cache)
            return self.attend(query, keys, values), cache

        positions = torch.full((tokens.shape[0],), position, dtype=torch.int32)
        logits, _ = self.model.decoder.step(tokens, gate, positions, caches, memories, attention, header)
        return look_early(logits, uniforms, self.model.decoder.is_held(gate), *sampling)


def _attend_plainly(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return attend_one(query, keys, values)


def _attend_fused(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    split = split_heads(query, query.shape[2] // keys.shape[3])
    attended = nn.functional.scaled_dot_product_attention(split, keys, values, enable_gqa=True)
    return merge_heads(attended)
