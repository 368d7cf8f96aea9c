"""A bundle's weights ship once, as fp16, under their PyTorch names; graphs only point at them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from timbrel_bundle.graph_header import parse_graph_header
from timbrel_bundle.weights import source_of

CONFIG_KEY = "config"
"""A weight file's header holds the config of its module under this key."""


@torch.no_grad()
def round_to_half(module: nn.Module) -> None:
    """Rounds every floating-point parameter and buffer to what fp16 can hold, in place."""
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.half().to(tensor.dtype))


@dataclass(frozen=True)
class WeightFile:
    """A file of weights, and how an exported wrapper names them."""

    name: str
    """File name, as graphs state it."""
    weights: frozenset[str]
    """PyTorch names of the weights in it."""
    prefix: str = ""
    """The wrapper puts this before those names."""

    def within(self, prefix: str) -> WeightFile:
        """Returns the same file as seen by a wrapper that puts `prefix` before its names."""
        return replace(self, prefix=prefix)

    def with_derived(self, names_of: Callable[[str], frozenset[str]]) -> WeightFile:
        """Returns the same file with what a runtime derives from its weights, by the names that `names_of` gives."""
        return replace(self, weights=self.weights.union(*map(names_of, self.weights)))


def save_weights(module: nn.Module, path: Path, config: Mapping[str, object] | None = None) -> WeightFile:
    """Writes the module's floating-point state as fp16; the file's header holds its config, as JSON."""
    state = {
        name: tensor.detach().half().contiguous().clone()
        for name, tensor in module.state_dict().items()
        if tensor.is_floating_point()
    }
    save_file(state, path, None if config is None else {CONFIG_KEY: json.dumps(config)})
    return weights_in(module, path.name)


def weights_in(module: nn.Module, file: str) -> WeightFile:
    """Lists what `save_weights` of the module wrote, or will write, into the file of this name."""
    state = module.state_dict()
    return WeightFile(file, frozenset(name for name, tensor in state.items() if tensor.is_floating_point()))


def drop_unused_weights(folder: Path) -> None:
    """Removes from the folder's weight files what no graph takes, such as the averages kept for training."""
    used: dict[str, set[str]] = {}
    for path in folder.glob("*.onnx"):
        for weight in parse_graph_header(path.read_bytes()).external_weights:
            used.setdefault(weight.location, set()).add(source_of(weight.name))
    for file, names in used.items():
        with safe_open(folder / file, framework="pt") as opened:
            about = opened.metadata()
        weights = load_file(folder / file)
        save_file({name: weights[name] for name in sorted(names)}, folder / file, about)
