"""The files of graphs and of weights: how a module becomes an .onnx file.

Every graph of a bundle is traced and simplified. Weights ship once, as fp16, under their PyTorch names, and
the graphs only point at them.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript.optimizer
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from safetensors import safe_open
from safetensors.torch import load, save
from torch import nn

from timbrel_bundle.graph_header import parse_graph_header
from timbrel_bundle.weights import source_of
from timbrel_export.errors import ExportError

M = TypeVar("M", bound=nn.Module)

CONFIG_KEY = "config"
"""A weight file's header holds the config of its module under this key."""
OPSET = 20
"""Any version of the ONNX standard that has LayerNormalization and Gelu does."""
OPTIONAL_OUTPUTS = frozenset({"SkipLayerNormalization"})
"""Operators of which all outputs but the first may be left out."""
FOLDED_AT_MOST = 16_384
"""Elements of a constant that may be stored; a runtime computes larger ones as it loads the graph."""
MIN_SPARSE_SIZE = 16_384
"""Constants of fewer elements are stored as they are."""
MAX_DENSITY = 0.1
"""Share of entries that are not zero up to which a constant is stored sparsely."""


def export_program(
    module: nn.Module,
    inputs: tuple[Any, ...],
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic_shapes: tuple[Any, ...],
    opset_version: int = OPSET,
) -> Any:
    """Traces a module into an ONNX program; `save_graph` simplifies it, with the weights set aside.

    Dynamic axes of the example `inputs` must not be 1, which export would take for a constant. There is an
    input name per tensor, lists flattened; `dynamic_shapes`, shaped like `inputs`, name the axes that vary.
    """
    # The exporter reports its progress through both, at length.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                module.eval(),
                inputs,
                input_names=list(input_names),
                output_names=list(output_names),
                dynamic_shapes=dynamic_shapes,
                opset_version=opset_version,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
    finally:
        logger.setLevel(level)


def save_graph(program: Any, path: Path, weights: WeightFile) -> None:
    """Simplifies the graph of what torch.onnx.export(dynamo=True, optimize=False) returned and writes it,
    every weight pointing into their file. What is not in the file stays in the graph."""
    model = program.model
    external: list[str] = []
    # As inputs the weights are beyond the optimizer's reach: it would transpose, merge and rename them.
    for value in list(model.graph.initializers.values()):
        if (name := value.name.removeprefix(weights.prefix)) in weights.weights:
            model.graph.initializers.pop(value.name)
            value.const_value = None
            value.name = name
            model.graph.inputs.append(value)
            external.append(name)
    onnxscript.optimizer.optimize_ir(model, output_size_limit=FOLDED_AT_MOST)
    model.metadata_props.clear()
    for node in model.graph.all_nodes():  # those in the branches of an `If`, too
        node.metadata_props.clear()
        node.doc_string = None
    proto = ir.to_proto(model)
    _make_external(proto.graph, external, weights.name)
    _drop_unused_outputs(proto.graph)
    _store_sparsely(proto.graph)
    path.write_bytes(proto.SerializeToString())


@torch.no_grad()
def round_to_half(module: nn.Module) -> None:
    """Rounds every floating-point parameter and buffer to what fp16 can hold, in place."""
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.half().to(tensor.dtype))


def as_shipped(module: M) -> M:
    """A copy on the CPU, in evaluation mode, with weights rounded to what a bundle holds. Raises ExportError:
    one is not finite, or too large for that."""
    shipped = copy.deepcopy(module).cpu().eval()
    round_to_half(shipped)
    for name, tensor in shipped.state_dict().items():
        if not tensor.isfinite().all():
            raise ExportError(f"the weight {name} is not finite, or too large for fp16")
    return shipped


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
        """Returns the same file with what a runtime derives from its weights, as `names_of` calls it."""
        return replace(self, weights=self.weights.union(*map(names_of, self.weights)))


def save_weights(module: nn.Module, path: Path, config: Mapping[str, object] | None = None) -> WeightFile:
    """Writes the module's state, its floats as fp16; the file's header holds its config, as JSON."""
    state = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).detach().contiguous().clone()
        for name, tensor in module.state_dict().items()
    }
    # The package's own `save_file` raises nothing that tells of a full disk.
    path.write_bytes(save(state, None if config is None else {CONFIG_KEY: json.dumps(config)}))
    return WeightFile(path.name, frozenset(state))


def drop_unused_weights(folder: Path, keep: str) -> None:
    """Removes from the folder's weight files what no graph takes, such as the averages kept for training.

    The file called `keep` stays as it is.
    """
    used: dict[str, set[str]] = {}
    for path in folder.glob("*.onnx"):
        for weight in parse_graph_header(path.read_bytes()).external_weights:
            used.setdefault(weight.location, set()).add(source_of(weight.name))
    for file, names in used.items():
        if file == keep:
            continue
        with safe_open(folder / file, framework="pt") as opened:
            about = opened.metadata()
        weights = load((folder / file).read_bytes())  # mapped, it could not be written to on Windows
        kept = {name: weights[name] for name in sorted(names)}
        (folder / file).write_bytes(save(kept, about))


def _make_external(graph: onnx.GraphProto, names: Sequence[str], file: str) -> None:
    """Turns the graph's inputs of these names into initializers that lie in the file."""
    inputs = {value.name: value for value in graph.input}
    for name in names:
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


def _store_sparsely(graph: onnx.GraphProto) -> None:
    """Replaces mostly-zero float constants by nodes that make them of their other entries.

    A bank of mel filters is 98 % zeros. A runtime folds the nodes as it loads the graph.
    """
    makers: list[onnx.NodeProto] = []
    for tensor in list(graph.initializer):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size >= MIN_SPARSE_SIZE and np.count_nonzero(values) <= MAX_DENSITY * values.size:
            graph.initializer.remove(tensor)
            makers.extend(_make_dense(graph, tensor.name, values))
    nodes = [*makers, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _make_dense(graph: onnx.GraphProto, name: str, values: NDArray[Any]) -> list[onnx.NodeProto]:
    """Makes nodes whose result, of this name, is the values: zeros, the other entries scattered over them."""
    flat = values.ravel()
    index = np.flatnonzero(flat)
    parts: dict[str, NDArray[Any]] = {
        "size": np.array([flat.size], dtype=np.int64),
        "index": index.astype(np.int32),
        "values": flat[index],
        "shape": np.array(values.shape, dtype=np.int64),
    }
    for part, array in parts.items():
        graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
    return [
        helper.make_node("ConstantOfShape", [f"{name}.size"], [f"{name}.zeros"]),
        helper.make_node(
            "ScatterElements", [f"{name}.zeros", f"{name}.index", f"{name}.values"], [f"{name}.flat"], axis=0
        ),
        helper.make_node("Reshape", [f"{name}.flat", f"{name}.shape"], [name]),
    ]
