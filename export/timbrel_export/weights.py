"""Weights of a bundle: shipped once, as fp16, under their PyTorch names; graphs only point at them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxscript.optimizer
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from timbrel_bundle.graph_header import parse_graph_header
from timbrel_bundle.weights import source_of
from timbrel_export.sparse import store_sparsely

CONFIG_KEY = "config"
"""Under which a weight file's header holds the config of its module."""
OPTIONAL_OUTPUTS = frozenset({"SkipLayerNormalization"})
"""Operators of which all outputs but the first may be left out."""
FOLDED_AT_MOST = 16_384
"""Elements of a constant that may be stored; a runtime computes larger ones as it loads the graph."""


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
    """What the wrapper puts before those names."""

    def within(self, prefix: str) -> WeightFile:
        """The same file as seen by a wrapper that puts `prefix` before its names."""
        return replace(self, prefix=prefix)

    def with_derived(self, names_of: Callable[[str], frozenset[str]]) -> WeightFile:
        """The same file with what a runtime derives from its weights, by the names that `names_of` gives."""
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
    """What `save_weights` of the module wrote, or will write, into the file of this name."""
    state = module.state_dict()
    return WeightFile(file, frozenset(name for name, tensor in state.items() if tensor.is_floating_point()))


def save_graph(program: Any, path: Path, *files: WeightFile) -> None:
    """Simplifies an exported program's graph and writes it, every weight pointing into its file.

    Args:
        program: what torch.onnx.export(dynamo=True, optimize=False) returned.
        path: the .onnx file.
        files: where the weights lie. What is in none of them stays in the graph.
    """
    model = program.model
    locations: dict[str, str] = {}
    # As inputs the weights are beyond the optimizer's reach: it would transpose, merge and rename them.
    for value in list(model.graph.initializers.values()):
        file = next((file for file in files if value.name.removeprefix(file.prefix) in file.weights), None)
        if file is not None:
            model.graph.initializers.pop(value.name)
            value.const_value = None
            value.name = value.name.removeprefix(file.prefix)
            model.graph.inputs.append(value)
            locations[value.name] = file.name
    onnxscript.optimizer.optimize_ir(model, output_size_limit=FOLDED_AT_MOST)
    model.metadata_props.clear()
    for node in model.graph:
        node.metadata_props.clear()
        node.doc_string = None
    proto = ir.to_proto(model)
    _make_external(proto.graph, locations)
    _drop_unused_outputs(proto.graph)
    store_sparsely(proto.graph)
    path.write_bytes(proto.SerializeToString())


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


def _make_external(graph: onnx.GraphProto, locations: dict[str, str]) -> None:
    """Turns the graph's inputs of these names into initializers that lie in these files."""
    inputs = {value.name: value for value in graph.input}
    for name, file in locations.items():
        tensor_type = inputs[name].type.tensor_type
        tensor = graph.initializer.add(name=name, data_type=tensor_type.elem_type)
        tensor.dims.extend(dim.dim_value for dim in tensor_type.shape.dim)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=file)
        graph.input.remove(inputs[name])


def _drop_unused_outputs(graph: onnx.GraphProto) -> None:
    """Leaves unnamed what may be left out and nobody takes, so that it is not computed."""
    taken = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type in OPTIONAL_OUTPUTS:
            node.output[1:] = [name if name in taken else "" for name in node.output[1:]]
