"""What a note's condition leaves for the decode graph: names and shapes."""

from __future__ import annotations

from timbrel_export.absorbed_attention import absorbed_names, absorbed_shapes
from timbrel_training.model import ModelConfig
from timbrel_training.model.config import N_CONDITION_POSITIONS


def memory_names(config: ModelConfig) -> list[str]:
    """Of all layers' tensors, in the order of the condition graph's outputs and the decode graph's inputs."""
    if config.conditioning == "cross":
        return absorbed_names(config)
    return [f"prefix_{part}_{layer}" for layer in range(config.n_decoder_layers) for part in ("k", "v")]


def memory_shapes(config: ModelConfig) -> list[tuple[int, ...]]:
    """Shapes of the same behind the batch axis."""
    if config.conditioning == "cross":
        return absorbed_shapes(config)
    shape = (config.n_kv_heads, N_CONDITION_POSITIONS, config.width_per_head)
    return [shape] * (2 * config.n_decoder_layers)
