"""Runs a bundle's decode graph over rows that stand at different positions, as a server's engine does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from timbrel_export.absorbed_attention import memory_names
from timbrel_export.model_graphs import SAMPLING_INPUTS, cache_names
from timbrel_training.model import ModelConfig
from timbrel_training.model.sampling import GREEDY, Sampling

CACHE_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8}

Arrays = dict[str, NDArray[Any]]


class GraphDecoder:
    """Holds the keys and values of some notes, one per row; `step` moves all of them on by one position."""

    def __init__(
        self, condition: ort.InferenceSession, decoder: ort.InferenceSession, config: ModelConfig
    ) -> None:
        self.condition = condition
        self.decoder = decoder
        self.config = config
        types = {each.name: each.type for each in decoder.get_inputs()}
        self._dtype = CACHE_TYPES[types["self_k_0"]]
        self._caches: Arrays = {}
        self.memories: Arrays = {}
        """The conditions as the decode graph reads them, by input name."""

    def begin(
        self, timbre: NDArray[np.float32], pitch: NDArray[np.int64], velocity: NDArray[np.float32]
    ) -> None:
        """Starts one note per row: timbre [B, 2], pitch [B], velocity [B].

        The caches hold rubbish, as those of a slot that was used before do.
        """
        config = self.config
        shape = (len(pitch), config.n_kv_heads, config.max_positions, config.width_per_head)
        self._caches = {
            name: np.full(shape, 7.0, dtype=self._dtype) for name in cache_names(config.n_decoder_layers)
        }
        names = memory_names(config)
        given = {"timbre": timbre, "pitch": pitch, "velocity": velocity}
        self.memories = dict(zip(names, self.condition.run(names, given), strict=True))

    def step(
        self,
        tokens: NDArray[np.int64],
        gate: NDArray[np.int64],
        position: NDArray[np.int32],
        *,
        uniforms: NDArray[np.float32] | None = None,
        sampling: Sampling = GREEDY,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Next tokens [B, K] and logits [B, K, V] of tokens [B, K], gate [B] and position [B]."""
        drawn_with = zip(SAMPLING_INPUTS, sampling.rows(len(tokens)), strict=True)
        given: Arrays = {
            "tokens": tokens,
            "gate": gate,
            "seqlens_k": position,
            "uniforms": np.full(tokens.shape, 0.5, dtype=np.float32) if uniforms is None else uniforms,
            **{name: tensor.numpy() for name, tensor in drawn_with},
        }
        written = [f"{name}_out" for name in self._caches]
        next_tokens, logits, *caches = self.decoder.run(
            ["next_tokens", "logits", *written], {**given, **self._caches, **self.memories}
        )
        self._caches = dict(zip(self._caches, caches, strict=True))
        return next_tokens, logits
